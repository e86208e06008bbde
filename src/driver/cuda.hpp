// SPDX-License-Identifier: Apache-2.0
// How cuvmm includes cuda.h: with every version of every signature declared, and without the macros
// that turn cuMemAlloc into cuMemAlloc_v2.
#pragma once

#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL_ODR
#endif

#include <cuda.h>
#include <cudaTypedefs.h>

static_assert(CUDA_VERSION >= 13000, "driver_api.def needs the declarations of CUDA 13.0");
