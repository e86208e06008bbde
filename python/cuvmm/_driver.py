# SPDX-License-Identifier: Apache-2.0
"""The few functions of the driver that this package calls itself."""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from ctypes import POINTER, byref, c_int, c_size_t, c_uint64, c_void_p
from typing import Any, Dict, Iterator, Optional

from .errors import DriverFailed

_CALLS = (("cuDevicePrimaryCtxRetain", POINTER(c_void_p), c_int),
          ("cuCtxGetCurrent", POINTER(c_void_p)),
          ("cuCtxPushCurrent_v2", c_void_p),
          ("cuCtxPopCurrent_v2", POINTER(c_void_p)),
          ("cuMemcpyHtoD_v2", c_uint64, c_void_p, c_size_t),
          ("cuMemcpyDtoH_v2", c_void_p, c_uint64, c_size_t))


class Driver:
    """libcuda by ctypes. An engine of the library has initialised it before."""

    def __init__(self) -> None:
        self._handle = ctypes.CDLL("libcuda.so.1")
        for name, *arguments in _CALLS:
            getattr(self._handle, name).argtypes = arguments
        self._contexts: Dict[int, c_void_p] = {}

    def call(self, name: str, *arguments: Any) -> None:
        """Raises what the driver refuses."""
        code = getattr(self._handle, name)(*arguments)
        if code != 0:
            raise DriverFailed(f"{name} answers CUDA error {code}", driver_code=code)

    @contextmanager
    def primary_context(self, device: int) -> Iterator[None]:
        """The device's primary context, which from then on is kept, is current."""
        if device not in self._contexts:
            context = c_void_p()
            self.call("cuDevicePrimaryCtxRetain", byref(context), device)
            self._contexts[device] = context
        self.call("cuCtxPushCurrent_v2", self._contexts[device])
        try:
            yield
        finally:
            self.call("cuCtxPopCurrent_v2", byref(c_void_p()))

    @contextmanager
    def some_context(self, device: int) -> Iterator[None]:
        """A context is current: the caller's, or else the device's primary one."""
        current = c_void_p()
        self.call("cuCtxGetCurrent", byref(current))
        if current:
            yield
            return
        with self.primary_context(device):
            yield


_driver: Optional[Driver] = None


def driver() -> Driver:
    """libcuda, loaded when first needed."""
    global _driver
    if _driver is None:
        _driver = Driver()
    return _driver
