# SPDX-License-Identifier: Apache-2.0
"""PyTorch: operations of its own operator database (op_db), sampled by the seed."""
import itertools
import random
import sys
import types
import unittest

import torch

from torch_support import Captured, TorchWork, loader, quiet_compiler

OPERATIONS = 40
SAMPLES = 4
# These return memory as they find it.
UNINITIALIZED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided",
                 "resize_", "resize_as_"}


def operator_database():
    # PyTorch's test support imports expecttest at its head. Its operator database needs nothing of it.
    if "expecttest" not in sys.modules:
        try:
            import expecttest  # noqa: F401
        except ImportError:
            stand_in = types.ModuleType("expecttest")
            stand_in.TestCase = unittest.TestCase
            sys.modules["expecttest"] = stand_in
    from torch.testing._internal import common_methods_invocations
    from torch.testing._internal.opinfo.core import UnaryUfuncInfo
    all_operations = [one for one in common_methods_invocations.op_db if one.name not in UNINITIALIZED]
    return all_operations, [one for one in all_operations if isinstance(one, UnaryUfuncInfo)]


def type_of(operation, device):
    types_here = operation.supported_dtypes(torch.device(device).type)
    return torch.float32 if torch.float32 in types_here else sorted(types_here, key=str)[0]


def plain(work, operations, chance):
    for operation in chance.sample(operations, OPERATIONS):
        name = f"{operation.name} {operation.variant_test_name}".strip()
        try:
            of_type = type_of(operation, work.device)
            gradient = operation.supports_autograd and of_type.is_floating_point
            torch.manual_seed(work.seed % (1 << 31))
            samples = operation.sample_inputs(work.device, of_type, requires_grad=gradient)
            for number, sample in enumerate(itertools.islice(samples, SAMPLES)):
                result = operation(sample.input, *sample.args, **sample.kwargs)
                work.add(f"{name}, sample {number}", result)
                if gradient:
                    add_gradients(work, f"{name}, sample {number}, gradient", sample, result)
        except Exception as error:  # the next one may work; the exception is the result
            work.outputs.raised(name, error)
        work.held.churn()


def add_gradients(work, name, sample, result):
    leaves = torch.utils._pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
    inputs = [one for one in leaves if isinstance(one, torch.Tensor) and one.requires_grad]
    results = [one for one in torch.utils._pytree.tree_leaves(result)
               if isinstance(one, torch.Tensor) and one.grad_fn is not None]
    if not inputs or not results:
        return
    total = sum(one.abs().sum() if one.is_complex() else one.sum() for one in results)
    work.add(name, torch.autograd.grad(total, inputs, allow_unused=True))


def usable_alone(unary, device):
    """Returns functions of those operations that work on any float32 tensor without further arguments."""
    usable = []
    for operation in unary:
        try:
            operation.op(torch.full((2, 2), 0.5, device=device))
            usable.append((operation.name, operation.op))
        except Exception:
            continue
    return usable


def chains(work, unary, chance, count):
    """Yields functions of a matrix that apply three sampled operations and a product."""
    usable = usable_alone(unary, work.device)
    for _ in range(count):
        chosen = chance.sample(usable, 3)
        weight = torch.randn(64, 64, device=work.device)

        def chain(x, functions=tuple(function for _, function in chosen), weight=weight):
            for function in functions:
                x = torch.nan_to_num(function(x).float(), nan=0.5, posinf=2.0, neginf=-2.0).clamp(-8, 8)
            return x @ weight
        yield ", ".join(name for name, _ in chosen), chain


def graphs(work, unary, chance):
    """Captures chains. That one cannot be captured is a result, natively as well; some have to be."""
    given, captured_chains = torch.full((48, 64), 0.5, device=work.device), 0
    for name, chain in chains(work, unary, chance, 12):
        try:
            captured = Captured(work, lambda chain=chain: chain(given))
        except Exception as error:
            work.outputs.raised(f"graph of {name}", error)
            continue
        captured_chains += 1
        for number in range(3):
            given.copy_(torch.randn(48, 64, device=work.device))
            work.held.churn()
            work.add(f"graph of {name}, replay {number}", captured.replay().clone())
    if captured_chains == 0:
        raise RuntimeError("nothing could be captured")


def compiled(work, unary, chance):
    with quiet_compiler():
        for name, chain in chains(work, unary, chance, 4):
            function = torch.compile(chain)
            for number in range(3):
                x = torch.randn(32 + 16 * number, 64, device=work.device)
                try:
                    work.add(f"compiled {name}, call {number}", function(x))
                except Exception as error:
                    work.outputs.raised(f"compiled {name}", error)
            work.held.churn()


def loaders(work, unary, chance):
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 64)).to(work.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    _, chain = next(chains(work, unary, chance, 1))
    for number, rows in enumerate(loader(work, 1024, 256, 64)):
        x = rows.to(work.device, non_blocking=True)
        loss = torch.nn.functional.mse_loss(model(x), chain(x[:, :64]).detach())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        work.add(f"loss of batch {number}", loss)
        work.held.churn()
    work.add("weights", list(model.parameters()))


def generation(work, unary, chance):
    """Decodes with a cache that grows by each token, as a model without a static cache does."""
    heads, width, words = chance.choice((2, 4, 8)), chance.choice((16, 32, 64)), 211
    total = heads * width
    embedding = torch.randn(words, total, device=work.device) / total ** 0.5
    query, key, value, out = (torch.randn(total, total, device=work.device) / total ** 0.5 for _ in range(4))
    keys = values = torch.zeros(8, heads, 0, width, device=work.device)
    token = torch.arange(8, device=work.device)
    for step in range(96):
        x = embedding[token]
        split = [(x @ matrix).view(8, heads, 1, width) for matrix in (query, key, value)]
        keys, values = torch.cat((keys, split[1]), dim=2), torch.cat((values, split[2]), dim=2)
        attended = torch.softmax(split[0] @ keys.transpose(2, 3) / width ** 0.5, dim=-1) @ values
        logits = (x + attended.reshape(8, total) @ out) @ embedding.T
        token = logits.argmax(dim=-1)
        work.add(f"token {step}", token)
        if step % 16 == 0:
            work.add(f"logits {step}", logits)
            work.held.churn()


USES = {"graphs": graphs, "compile": compiled, "loaders": loaders, "generation": generation}


def run(asked, outputs):
    work = TorchWork(asked, outputs)
    chance = random.Random(asked.seed)
    every, unary = operator_database()
    if asked.use == "plain":
        plain(work, every, chance)
    else:
        USES[asked.use](work, unary, chance)
    return work.finish(f"torch {torch.__version__}")
