# SPDX-License-Identifier: Apache-2.0
"""Imports cuvmm as a user does, and checks that the parts it finds are in PREFIX.

    use_package.py PREFIX

Run natively and by that installation's `cuvmm run`. The package is found through PYTHONPATH or this
Python's environment. CUVMM_TEST_ENGINE names the expected engine.
"""

import os
import sys

import cuvmm
from cuvmm import _capi, places

prefix = os.path.realpath(sys.argv[1])


def in_prefix(path):
    assert os.path.realpath(path).startswith(prefix + os.sep), f"{path} is not in {prefix}"


in_prefix(cuvmm.__file__)
assert os.path.exists(os.path.join(os.path.dirname(cuvmm.__file__), "py.typed"))
with cuvmm.ElasticPool(1 << 30) as pool:
    in_prefix(_capi.library().path)
    with pool.array(1000, "uint8") as array:
        array.copy_from(bytes(range(250)) * 4)
        assert array.tobytes() == bytes(range(250)) * 4
with cuvmm.ResizableBuffer(1 << 30) as buffer:
    buffer.resize(1 << 20)
    assert buffer.info().size == 1 << 20
expected = cuvmm.EngineKind[os.environ["CUVMM_TEST_ENGINE"].upper()]
assert cuvmm.engine_info().kind is expected, cuvmm.engine_info()
in_prefix(places.program())
in_prefix(places.preload_library())
in_prefix(places.sim_folder())
print(f"import cuvmm: {expected.name.lower()} engine, version {cuvmm.version()}")
