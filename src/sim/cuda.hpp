// SPDX-License-Identifier: Apache-2.0
// cuda.h as the simulated driver sees it: every version of every signature, and no macro that
// turns cuMemAlloc into cuMemAlloc_v2.
#pragma once

#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL_ODR
#endif

#include <cuda.h>
#include <cudaTypedefs.h>
