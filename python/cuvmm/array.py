# SPDX-License-Identifier: Apache-2.0
"""Device memory as an array that torch, cupy and numba take without copying it."""

import ctypes
import math

from .errors import DriverFailed, InvalidArgument

# The letters of __cuda_array_interface__ for what torch, cupy and numpy call their types.
TYPES = {
    "bool": "|b1", "int8": "|i1", "uint8": "|u1", "int16": "<i2", "uint16": "<u2", "int32": "<i4",
    "uint32": "<u4", "int64": "<i8", "uint64": "<u8", "float16": "<f2", "float32": "<f4",
    "float64": "<f8", "complex64": "<c8", "complex128": "<c16",
}


def type_string(dtype):
    """"float32", "<f4", numpy.float32 and numpy.dtype("f4") alike."""
    if isinstance(dtype, str):
        if dtype in TYPES:
            return TYPES[dtype]
        if dtype in TYPES.values():
            return dtype
    name = getattr(dtype, "str", None)  # a numpy.dtype
    if isinstance(name, str):
        return name
    name = getattr(dtype, "__name__", "")  # a numpy scalar type
    if name in TYPES:
        return TYPES[name]
    raise InvalidArgument(f"no such type: {dtype!r}")


class _Driver:
    """The few driver functions by which host memory is copied."""

    def __init__(self):
        self.handle = ctypes.CDLL("libcuda.so.1")
        for name, *arguments in (
                ("cuDevicePrimaryCtxRetain", ctypes.POINTER(ctypes.c_void_p), ctypes.c_int),
                ("cuCtxPushCurrent_v2", ctypes.c_void_p),
                ("cuCtxPopCurrent_v2", ctypes.POINTER(ctypes.c_void_p)),
                ("cuMemcpyHtoD_v2", ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t),
                ("cuMemcpyDtoH_v2", ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t)):
            getattr(self.handle, name).argtypes = arguments
        self.contexts = {}

    def copy(self, name, device, *arguments):
        """In the device's primary context, which from then on is kept."""
        if device not in self.contexts:
            context = ctypes.c_void_p()
            self.check("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
            self.contexts[device] = context
        self.check("cuCtxPushCurrent_v2", self.contexts[device])
        try:
            self.check(name, *arguments)
        finally:
            self.check("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def check(self, name, *arguments):
        code = getattr(self.handle, name)(*arguments)
        if code != 0:
            raise DriverFailed(f"{name} answers CUDA error {code}", driver_code=code)


_driver = None


def driver():
    global _driver
    if _driver is None:
        _driver = _Driver()
    return _driver


class DeviceArray:
    """A C-contiguous array in a pool. Valid until free(), or until its pool or model ends, or its
    model is deactivated. Keeps nothing alive that it does not own: what was made from it by cupy or
    torch must be gone, or not be used, by then."""

    def __init__(self, address, offset, shape, dtype, device, free):
        self.shape = tuple(int(n) for n in (shape if hasattr(shape, "__iter__") else (shape,)))
        self.typestr = type_string(dtype)
        self.address = address
        self.offset = offset
        self.nbytes = size_of(self.shape, self.typestr)
        self._device = device
        self._free = free

    @property
    def __cuda_array_interface__(self):
        if self._free is None:
            raise InvalidArgument("the array has been freed")
        return {"shape": self.shape, "typestr": self.typestr, "data": (self.address, False),
                "strides": None, "version": 3}

    def free(self):
        """Gives the memory back. A second time does nothing."""
        if self._free is not None:
            self._free(self.offset, self.nbytes)
            self._free = None

    def copy_from(self, host):
        """From anything with the buffer protocol (bytes, array, a numpy array), of the same size."""
        view = memoryview(host).cast("B") if not isinstance(host, memoryview) else host.cast("B")
        if view.nbytes != self.nbytes:
            raise InvalidArgument(f"{view.nbytes} bytes for an array of {self.nbytes}")
        source = (ctypes.c_char * view.nbytes).from_buffer_copy(view)
        self._copy("cuMemcpyHtoD_v2", self.address, source, self.nbytes)

    def tobytes(self):
        target = ctypes.create_string_buffer(self.nbytes)
        self._copy("cuMemcpyDtoH_v2", target, self.address, self.nbytes)
        return target.raw

    def numpy(self):
        """A copy as a numpy array."""
        import numpy
        return numpy.frombuffer(bytearray(self.tobytes()), dtype=self.typestr).reshape(self.shape)

    def _copy(self, name, *arguments):
        if self._free is None:
            raise InvalidArgument("the array has been freed")
        driver().copy(name, self._device, *arguments)


def size_of(shape, typestr):
    size = math.prod(shape) * int(typestr[2:])
    if size <= 0:
        raise InvalidArgument(f"an array of shape {shape} has no bytes")
    return size
