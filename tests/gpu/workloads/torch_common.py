# SPDX-License-Identifier: Apache-2.0
"""PyTorch's settings for bitwise reproducible results."""
import os

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402


def settle():
    torch.manual_seed(0)
    # Operations without a deterministic form only warn: native runs that then differ are reported
    # as such.
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False


def bytes_of(tensor):
    return tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()


def bytes_of_all(tensors):
    return (bytes_of(tensor) for tensor in tensors)
