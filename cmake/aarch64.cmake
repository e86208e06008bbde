# SPDX-License-Identifier: Apache-2.0
# Cross-compiles for aarch64 Linux, on a machine of another architecture. Libraries and headers of
# the target come from CUVMM_SYSROOT, which ./dev cross fills (tools/cross.sh). Tests that are
# programs of the target run in qemu-aarch64.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CUVMM_SYSROOT "${CMAKE_CURRENT_LIST_DIR}/../build-aarch64/sysroot" CACHE PATH
  "libraries and headers of the target")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES CUVMM_SYSROOT)
get_filename_component(CMAKE_SYSROOT "${CUVMM_SYSROOT}" ABSOLUTE)

set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_CROSSCOMPILING_EMULATOR "${CMAKE_CURRENT_LIST_DIR}/../build-aarch64/qemu-aarch64" -L "${CMAKE_SYSROOT}")

# Programs run on this machine; everything else must be the target's.
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CUVMM_NVCC "" CACHE FILEPATH "nvcc makes programs for the building machine")
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${CMAKE_SYSROOT}")
set(ENV{PKG_CONFIG_LIBDIR} "${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig")
