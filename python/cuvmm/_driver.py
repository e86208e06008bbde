# SPDX-License-Identifier: Apache-2.0
"""The few driver functions that this package calls directly."""

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
    """libcuda through ctypes. libcuvmm's engine must have initialized the driver before."""

    def __init__(self) -> None:
        self._handle = ctypes.CDLL("libcuda.so.1")
        for name, *arguments in _CALLS:
            getattr(self._handle, name).argtypes = arguments
        self._contexts: Dict[int, c_void_p] = {}

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a driver function. Raises DriverFailed if it returns an error."""
        code = getattr(self._handle, name)(*arguments)
        if code != 0:
            raise DriverFailed(f"{name} answers CUDA error {code}", driver_code=code)

    @contextmanager
    def primary_context(self, device: int) -> Iterator[None]:
        """Makes the device's primary context current inside the `with` block.

        The context is retained on first use and never released.
        """
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
        """Ensures a current context inside the `with` block.

        Keeps the caller's current context if there is one; otherwise uses the device's primary
        context.
        """
        current = c_void_p()
        self.call("cuCtxGetCurrent", byref(current))
        if current:
            yield
            return
        with self.primary_context(device):
            yield


_driver: Optional[Driver] = None


def driver() -> Driver:
    """Returns the driver, loading libcuda on the first call."""
    global _driver
    if _driver is None:
        _driver = Driver()
    return _driver
