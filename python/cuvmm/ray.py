# SPDX-License-Identifier: Apache-2.0
"""Enforces Ray's fractions of a GPU: a runtime_env plugin sets each worker's limit and weight.

    cuvmm.ray.enable()                     # before ray.init() or `ray start`, on every node
    @ray.remote(**cuvmm.ray.share(0.25))   # num_gpus=0.25, and a quarter of the card's memory
    def task(): ...

Ray counts `num_gpus` when it places a task, but enforces nothing. A plugin does not see `num_gpus`,
and Ray reuses a worker for every task of the same runtime_env, so the runtime_env must contain the
share too: share() sets both. See docs/ray.md.
"""

from __future__ import annotations

import json
import numbers
import os
from typing import Any, Mapping, Optional, Union

from ._options import MOST_WEIGHT, variables_of
from .environment import env

try:
    from ray._private.runtime_env.plugin import RuntimeEnvPlugin as _Base
except ImportError:  # `share` and `environment` work without Ray
    _Base = object  # type: ignore[assignment,misc]

FIELD = "cuvmm"
PLUGIN = "cuvmm.ray.CuvmmPlugin"
_PLUGINS = "RAY_RUNTIME_ENV_PLUGINS"
_SHARE = "CUVMM_RAY_SHARE"  # in a worker: the share that its limit is for
_WEIGHT_OF_A_CARD = 100
_LEAST_SHARE = 0.0001       # Ray's own resolution


def enable(variables: Optional[dict[str, str]] = None) -> None:
    """Registers the plugin with Ray. Calling it again changes nothing.

    Adds the plugin to RAY_RUNTIME_ENV_PLUGINS of this process (or of `variables`), which
    `ray.init()` and `ray start` pass on to the processes that they start.
    """
    target = os.environ if variables is None else variables
    plugins = json.loads(target.get(_PLUGINS, "") or "[]")
    if not any(one.get("class") == PLUGIN for one in plugins):
        plugins.append({"class": PLUGIN})
    target[_PLUGINS] = json.dumps(plugins)


def share(num_gpus: float, *, runtime_env: Optional[Mapping[str, Any]] = None,
          sim: Union[bool, Mapping[str, object]] = False, **options: object) -> dict[str, Any]:
    """Returns the arguments that give ray.remote(), .options() or ray_actor_options this share.

    `runtime_env` is merged into the worker's runtime_env. `sim` and `options` are as for
    cuvmm.env(), and options override the defaults that follow from the share: limit="8G", weight=3,
    guarantee="4G", group="job7". Raises ValueError if the share or an option is invalid.
    """
    field: dict[str, Any] = {"num_gpus": num_gpus, **options}
    if sim or isinstance(sim, Mapping):
        field["sim"] = dict(sim) if isinstance(sim, Mapping) else True
    _check(field)
    return {"num_gpus": num_gpus, "runtime_env": {**(runtime_env or {}), FIELD: field}}


def _check(field: Any) -> None:
    """Raises ValueError if the runtime_env's field is invalid."""
    if not isinstance(field, Mapping) or "num_gpus" not in field:
        raise ValueError(f"runtime_env[{FIELD!r}] is a dict with num_gpus, as cuvmm.ray.share() "
                         f"makes it; this is {field!r}")
    gpus = field["num_gpus"]
    if isinstance(gpus, bool) or not isinstance(gpus, numbers.Real) or not gpus >= _LEAST_SHARE:
        raise ValueError(f"num_gpus is a number from {_LEAST_SHARE} on, not {gpus!r}")
    if gpus > 1 and gpus != int(gpus):
        raise ValueError(f"num_gpus is a part of one GPU or a whole number of them, not {gpus!r}")
    options = {name: value for name, value in field.items() if name not in ("num_gpus", "sim")}
    try:
        variables_of(options)
    except TypeError as unknown:
        raise ValueError(str(unknown)) from None


def environment(field: Mapping[str, Any], base: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment variables of a worker with this share that differ from `base`."""
    _check(field)
    gpus = field["num_gpus"]
    options = {name: value for name, value in field.items() if name not in ("num_gpus", "sim")}
    if gpus < 1:
        options.setdefault("limit", f"{gpus * 100:.4g}%")
        options.setdefault("group", "none")  # each share is a task's own, not its job's
    options.setdefault("weight", min(max(1, round(gpus * _WEIGHT_OF_A_CARD)), MOST_WEIGHT))
    variables = env(base, sim=field.get("sim", False), **options)
    variables[_SHARE] = str(gpus)
    return {name: value for name, value in variables.items() if base.get(name) != value}


class CuvmmPlugin(_Base):  # type: ignore[misc,valid-type]
    """The plugin that RAY_RUNTIME_ENV_PLUGINS names. It runs in Ray's agent on each node."""

    name = FIELD

    @staticmethod
    def validate(runtime_env_dict: Mapping[str, Any]) -> None:
        """Rejects a runtime_env, and with it the task, if cuvmm's field is invalid."""
        if runtime_env_dict.get(FIELD) is not None:
            _check(runtime_env_dict[FIELD])

    def modify_context(self, uris: Any, runtime_env: Mapping[str, Any], context: Any,
                       logger: Any) -> None:
        """Adds the worker's variables to its context, overriding those that the user set."""
        field = runtime_env.get(FIELD)
        if field is None:
            return
        added = environment(field, {**os.environ, **context.env_vars})
        context.env_vars.update(added)
        logger.info("cuvmm: a worker for %s GPU, limit %s, weight %s", field["num_gpus"],
                    added.get("VMM_LIMIT", "none"), added.get("VMM_WEIGHT"))


def verify() -> float:
    """Returns the share of a GPU that cuvmm enforces for this worker.

    Call it in a task or an actor. Raises RuntimeError if nothing enforces a share, because Ray was
    started on this node without the plugin, or if Ray assigned a different number of GPUs than
    share() was given.
    """
    kept = os.environ.get(_SHARE)
    if kept is None or "libcuvmm_preload" not in os.environ.get("LD_PRELOAD", ""):
        raise RuntimeError("this worker is not under cuvmm: use cuvmm.ray.share(), and call "
                           "cuvmm.ray.enable() before Ray starts on each node")
    import ray  # noqa: PLC0415: what else is here works without it
    assigned = ray.get_runtime_context().get_assigned_resources().get("GPU", 0)
    if abs(assigned - float(kept)) > _LEAST_SHARE:
        raise RuntimeError(f"Ray assigned {assigned} GPU, and cuvmm keeps this worker to {kept}: "
                           f"num_gpus was changed after cuvmm.ray.share()")
    return float(kept)
