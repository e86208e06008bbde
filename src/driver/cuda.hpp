// SPDX-License-Identifier: Apache-2.0
// The only include of cuda.h in cuvmm: declares every version of every signature, and suppresses
// the macros that turn cuMemAlloc into cuMemAlloc_v2.
#pragma once

#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL_ODR
#endif

#include <cuda.h>
#include <cudaTypedefs.h>

static_assert(CUDA_VERSION >= 13000, "driver_api.def needs the declarations of CUDA 13.0");
