// SPDX-License-Identifier: Apache-2.0
// cuda.h as the simulated driver needs it: all versions of all signatures, and no macros that turn
// cuMemAlloc into cuMemAlloc_v2.
#pragma once

#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL_ODR
#endif

#include <cuda.h>
#include <cudaTypedefs.h>
