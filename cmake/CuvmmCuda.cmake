# SPDX-License-Identifier: Apache-2.0
# cuvmm_cuda: the folder with cuda.h and cudaTypedefs.h of CUDA 13.0 or newer. Only declarations are
# used; nothing is linked.
include(CuvmmCudaSearch)

set(CUVMM_CUDA_INCLUDE "" CACHE PATH "folder with cuda.h and cudaTypedefs.h, 13.0 or newer")
cuvmm_cuda_version("${CUVMM_CUDA_INCLUDE}" version)
if(version LESS 13000)   # not set, or removed since the last configuration
  cuvmm_find_cuda(found)
  set(CUVMM_CUDA_INCLUDE "${found}" CACHE PATH "" FORCE)
  cuvmm_cuda_version("${CUVMM_CUDA_INCLUDE}" version)
endif()
if(version LESS 13000)
  message(FATAL_ERROR "No cuda.h of CUDA 13.0 or newer found. ./dev build fetches one, or set CUVMM_CUDA_INCLUDE.")
endif()
message(STATUS "cuda.h ${version} from ${CUVMM_CUDA_INCLUDE}")
add_library(cuvmm_cuda INTERFACE)
target_include_directories(cuvmm_cuda SYSTEM INTERFACE "${CUVMM_CUDA_INCLUDE}")
