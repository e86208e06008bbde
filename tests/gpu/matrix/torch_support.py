# SPDX-License-Identifier: Apache-2.0
"""What the families that compute with PyTorch share."""
import contextlib
import os

import torch

from held import Held


class TorchWork:
    """Deterministic settings, the memory that it holds, and outputs from tensors."""

    def __init__(self, asked, outputs):
        self.device, self.outputs, self.seed = asked.device, outputs, asked.seed
        torch.manual_seed(asked.seed % (1 << 31))
        # Operations without a deterministic form only warn: two native runs then show it.
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cudnn.benchmark = False
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        if self.device == "cuda" and not torch.cuda.is_available():
            raise ImportError("torch has no card")
        self.held = Held(asked.seed, asked.scale, self.make, self.fetch)
        self.held.prepare()
        self.held.check(outputs, "before")

    def make(self, count, factor):
        # In one buffer, since a temporary of this size would count as use.
        array = torch.arange(count, dtype=torch.int32, device=self.device)
        return array.mul_(factor)

    @staticmethod
    def fetch(array):
        return array.cpu().numpy().tobytes()

    def add(self, name, value):
        """Adds all tensors and numbers in a value."""
        for number, one in enumerate(torch.utils._pytree.tree_leaves(value)):
            if isinstance(one, torch.Tensor):
                self.add_tensor(f"{name}, output {number}", one)
            elif isinstance(one, (bool, int, float)):
                self.add_tensor(f"{name}, output {number}", torch.tensor(one))

    def add_tensor(self, name, tensor):
        tensor = tensor.detach()
        if tensor.layout != torch.strided:
            tensor = tensor.to_dense()
        if tensor.is_quantized:
            tensor = tensor.dequantize()
        tensor = tensor.resolve_conj().resolve_neg().cpu().contiguous()
        contents = None
        if tensor.dtype in (torch.bfloat16, torch.complex32) or tensor.dtype.itemsize == 1:
            contents = tensor.view(torch.uint8).numpy().tobytes() if tensor.dim() else \
                tensor.reshape(1).view(torch.uint8).numpy().tobytes()
            tensor = tensor.to(torch.complex64 if tensor.dtype == torch.complex32 else torch.float32)
        self.outputs.add(name, tensor.numpy(), contents)

    def synchronize(self):
        if self.device == "cuda":
            torch.cuda.synchronize()

    def finish(self, version):
        self.synchronize()
        self.held.check(self.outputs, "after")
        told = {"version": version}
        if self.device == "cuda":
            told["needed_bytes"] = torch.cuda.max_memory_allocated()
            told["held_bytes"] = torch.cuda.max_memory_reserved()
        return told


class Captured:
    """Work captured as a CUDA graph. On the CPU, the work itself."""

    def __init__(self, work, call):
        self.call, self.graph = call, None
        if work.device != "cuda":
            self.result = call()
            return
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):  # lazy initialization happens before the capture
            for _ in range(3):
                call()
        torch.cuda.current_stream().wait_stream(aside)
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.result = call()

    def replay(self):
        if self.graph is None:
            self.result = self.call()
        else:
            self.graph.replay()
        return self.result


@contextlib.contextmanager
def quiet_compiler():
    """torch.compile without choices by measured times, and few processes that compile."""
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "2")
    import torch._inductor.config as config
    settings = {name: value for name, value in (("deterministic", True), ("compile_threads", 2))
                if hasattr(config, name)}
    with config.patch(settings):
        yield


class Numbers(torch.utils.data.Dataset):
    """Rows that depend on the seed and their index alone."""

    def __init__(self, seed, count, width):
        self.seed, self.count, self.width = seed, count, width

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(self.seed % (1 << 31) + index)
        return torch.randn(self.width, generator=generator)


def loader(work, count, width, rows):
    return torch.utils.data.DataLoader(Numbers(work.seed, count, width), batch_size=rows, num_workers=2,
                                       pin_memory=work.device == "cuda")
