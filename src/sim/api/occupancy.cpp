// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "sim/bodies.hpp"
#include "sim/context.hpp"
#include "sim/library.hpp"

namespace cuvmm::sim {
namespace {

constexpr int warp = 32;

CUresult most_active_blocks(int* blocks, CUfunction handle, int threads, size_t shared,
                            unsigned flags) {
  CUVMM_SIM_CONTEXT(context);
  std::shared_ptr<Function> function;
  const CUresult found = find_function(handle, context, function);
  if (found != CUDA_SUCCESS) return found;
  if (blocks == nullptr || threads <= 0 || (flags & ~CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *blocks = static_cast<int>(
      blocks_per_multiprocessor(function->attributes, static_cast<Size>(threads), shared));
  return CUDA_SUCCESS;
}

// Finds the largest block size with which the most threads run.
CUresult best_block_size(int* grid, int* block, CUfunction handle, CUoccupancyB2DSize shared_of,
                         size_t shared, int limit, unsigned flags) {
  CUVMM_SIM_CONTEXT(context);
  std::shared_ptr<Function> function;
  const CUresult found = find_function(handle, context, function);
  if (found != CUDA_SUCCESS) return found;
  if (grid == nullptr || block == nullptr || limit < 0 ||
      (flags & ~CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  int most = static_cast<int>(function->attributes.most_threads());
  if (limit != 0) most = std::min(most, limit);
  int best_blocks = 0;
  int best_threads = 0;
  for (int threads = most; threads > 0; threads = (threads - 1) / warp * warp) {
    const size_t dynamic = shared_of != nullptr ? shared_of(threads) : shared;
    const int blocks = static_cast<int>(
        blocks_per_multiprocessor(function->attributes, static_cast<Size>(threads), dynamic));
    if (blocks * threads > best_blocks * best_threads) {
      best_blocks = blocks;
      best_threads = threads;
    }
  }
  *grid = best_blocks * static_cast<int>(multiprocessors);
  *block = best_threads;
  return CUDA_SUCCESS;
}

}  // namespace

CUVMM_SIM(cuOccupancyMaxActiveBlocksPerMultiprocessor)
(int* blocks, CUfunction function, int threads, size_t shared) {
  return most_active_blocks(blocks, function, threads, shared, 0);
}

CUVMM_SIM(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags)
(int* blocks, CUfunction function, int threads, size_t shared, unsigned flags) {
  return most_active_blocks(blocks, function, threads, shared, flags);
}

CUVMM_SIM(cuOccupancyMaxPotentialBlockSize)
(int* grid, int* block, CUfunction function, CUoccupancyB2DSize shared_of, size_t shared,
 int limit) {
  return best_block_size(grid, block, function, shared_of, shared, limit, 0);
}

CUVMM_SIM(cuOccupancyMaxPotentialBlockSizeWithFlags)
(int* grid, int* block, CUfunction function, CUoccupancyB2DSize shared_of, size_t shared, int limit,
 unsigned flags) {
  return best_block_size(grid, block, function, shared_of, shared, limit, flags);
}

CUVMM_SIM(cuOccupancyAvailableDynamicSMemPerBlock)
(size_t* shared, CUfunction handle, int blocks, int threads) {
  CUVMM_SIM_CONTEXT(context);
  std::shared_ptr<Function> function;
  const CUresult found = find_function(handle, context, function);
  if (found != CUDA_SUCCESS) return found;
  if (shared == nullptr || blocks <= 0 || threads <= 0) return CUDA_ERROR_INVALID_VALUE;
  const auto fitting =
      blocks_per_multiprocessor(function->attributes, static_cast<Size>(threads), 0);
  if (static_cast<unsigned>(blocks) > fitting) {
    *shared = 0;
    return CUDA_SUCCESS;
  }
  const Size each = shared_bytes_per_multiprocessor / static_cast<Size>(blocks);
  const Size taken = reserved_shared_bytes_per_block + function->attributes.static_shared_bytes();
  *shared =
      std::min(each > taken ? each - taken : 0, function->attributes.most_dynamic_shared_bytes());
  return CUDA_SUCCESS;
}

}  // namespace cuvmm::sim
