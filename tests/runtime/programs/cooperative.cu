// SPDX-License-Identifier: Apache-2.0
// Cooperative groups: tiles of a warp, groups of the active threads, and grid-wide barriers.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#include "must.cuh"

namespace groups = cooperative_groups;

__global__ void neighbours(int* values, int rounds) {
  const groups::grid_group grid = groups::this_grid();
  const unsigned count = grid.size();
  const unsigned i = grid.thread_rank();
  for (int round = 0; round < rounds; ++round) {
    const int next = values[(i + 1) % count];
    grid.sync();
    values[i] = next + 1;
    grid.sync();
  }
}

__global__ void tiles(int* sums, int* ranks) {
  const groups::thread_block block = groups::this_thread_block();
  const auto tile = groups::tiled_partition<8>(block);
  sums[threadIdx.x] = groups::reduce(tile, static_cast<int>(threadIdx.x), groups::plus<int>());
  ranks[threadIdx.x] = -1;
  block.sync();
  if (threadIdx.x % 3 == 0) {
    const groups::coalesced_group here = groups::coalesced_threads();
    ranks[threadIdx.x] = static_cast<int>(here.thread_rank());
  }
}

int main() {
  constexpr int blocks = 4;
  constexpr int threads = 64;
  constexpr int count = blocks * threads;
  std::vector<int> begun(count);
  for (int i = 0; i < count; ++i) begun[i] = i * i;
  int* values = on_device(begun);
  int rounds = 5;
  void* parameters[] = {&values, &rounds};
  MUST(cudaLaunchCooperativeKernel(neighbours, dim3(blocks), dim3(threads), parameters, 0, nullptr));
  const auto found = on_host(values, count);
  for (int i = 0; i < count; ++i) {
    expect_near("neighbours", i, found[i], begun[(i + rounds) % count] + rounds);
  }

  int* sums = on_device(std::vector<int>(threads));
  int* ranks = on_device(std::vector<int>(threads));
  tiles<<<1, threads>>>(sums, ranks);
  MUST(cudaGetLastError());
  const auto found_sums = on_host(sums, threads);
  const auto found_ranks = on_host(ranks, threads);
  for (int i = 0; i < threads; ++i) {
    const int first = i / 8 * 8;
    expect_near("sum", i, found_sums[i], 8 * first + 28);
    const int warp = i / 32 * 32;
    int rank = 0;
    for (int other = warp; other < i; ++other) rank += other % 3 == 0;
    expect_near("rank", i, found_ranks[i], i % 3 == 0 ? rank : -1);
  }
  return 0;
}
