// SPDX-License-Identifier: Apache-2.0
// Uses torch_memory_saver as PyTorch programs do: memory of its regions leaves the device and comes
// back to the same addresses. Without an argument, the library is preloaded and serves cudaMalloc.
// With one, which names its library for pluggable allocators, the program calls that itself.
#include <cuda_runtime_api.h>

#include <cstring>

#include "stages.hpp"

namespace {

constexpr std::size_t MiB = std::size_t{1} << 20;

void check(cudaError_t answer, const char* what) {
  if (answer != cudaSuccess) stages::fail(what, answer);
}

struct Saver {
  void (*tms_set_interesting_region)(bool);
  void (*tms_set_current_tag)(const char*);
  void (*tms_set_enable_cpu_backup)(bool);
  int (*tms_pause)(const char*);
  int (*tms_resume)(const char*);
  const std::uint8_t* (*tms_get_cpu_backup_pointer)(const std::uint8_t*, std::uint64_t);
  void* (*tms_torch_malloc)(ssize_t, int, cudaStream_t) = nullptr;
  void (*tms_torch_free)(void*, ssize_t, int, cudaStream_t) = nullptr;
};

Saver find_saver(const char* path) {
  Saver saver{};
  void* const library = path != nullptr ? stages::open_library(path) : RTLD_DEFAULT;
#define FIND(name) stages::find(saver.name, library, #name)
  FIND(tms_set_interesting_region);
  FIND(tms_set_current_tag);
  FIND(tms_set_enable_cpu_backup);
  FIND(tms_pause);
  FIND(tms_resume);
  FIND(tms_get_cpu_backup_pointer);
  if (path != nullptr) {
    FIND(tms_torch_malloc);
    FIND(tms_torch_free);
  }
#undef FIND
  return saver;
}

enum class Backup { None, Host };

struct Block {
  std::uint8_t* address;
  std::size_t size;
  std::uint32_t seed;
};

void fill(const Block& block) {
  const std::vector<std::uint32_t> host = stages::words(block.size, block.seed);
  check(cudaMemcpy(block.address, host.data(), block.size, cudaMemcpyHostToDevice), "fill");
}

void expect_filled(const Block& block, const char* claim) {
  std::vector<std::uint32_t> host(block.size / 4);
  check(cudaMemcpy(host.data(), block.address, block.size, cudaMemcpyDeviceToHost), "read");
  stages::expect(host == stages::words(block.size, block.seed), claim);
}

Block allocate_in_region(const Saver& saver, const char* tag, Backup backup, std::size_t size,
                         std::uint32_t seed) {
  saver.tms_set_current_tag(tag);
  saver.tms_set_enable_cpu_backup(backup == Backup::Host);
  saver.tms_set_interesting_region(true);
  void* address = nullptr;
  if (saver.tms_torch_malloc != nullptr) {
    address = saver.tms_torch_malloc(static_cast<ssize_t>(size), 0, nullptr);
  } else {
    check(cudaMalloc(&address, size), "cudaMalloc in a region");
  }
  saver.tms_set_interesting_region(false);
  const Block block{static_cast<std::uint8_t*>(address), size, seed};
  fill(block);
  return block;
}

void release(const Saver& saver, const Block& block) {
  if (saver.tms_torch_free != nullptr) {
    saver.tms_set_interesting_region(true);  // without it, the library ends the process
    saver.tms_torch_free(block.address, static_cast<ssize_t>(block.size), 0, nullptr);
    saver.tms_set_interesting_region(false);
  } else {
    check(cudaFree(block.address), "cudaFree");
  }
}

long long free_mib() {
  std::size_t free = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return static_cast<long long>(free / MiB);
}

void report_freed(long long free_before) {
  std::printf("free memory grew by %lld MiB\n", free_mib() - free_before);
}

void expect_backup(const Saver& saver, const Block& block) {
  const std::uint8_t* const copy = saver.tms_get_cpu_backup_pointer(block.address, block.size);
  stages::expect(copy != nullptr, "a paused block has a copy");
  const std::vector<std::uint32_t> host = stages::words(block.size, block.seed);
  stages::expect(std::memcmp(copy, host.data(), block.size) == 0, "the copy is the contents");
}

void take_a_turn(const Saver& saver, const std::vector<Block>& weights, const Block& cache,
                 const std::vector<Block>& outside) {
  const auto expect_the_rest = [&] {
    for (const Block& block : outside) expect_filled(block, "memory outside keeps its contents");
  };
  long long free_before = free_mib();
  stages::expect(saver.tms_pause("weights") == 0, "tms_pause of the weights");
  report_freed(free_before);
  stages::reach("weights paused");
  for (const Block& block : weights) expect_backup(saver, block);
  expect_filled(cache, "memory with another tag keeps its contents");
  expect_the_rest();

  stages::expect(saver.tms_pause("cache") == 0, "tms_pause of the cache");
  report_freed(free_before);
  stages::reach("all paused");
  expect_the_rest();

  free_before = free_mib();
  stages::expect(saver.tms_resume(nullptr) == 0, "tms_resume");
  report_freed(free_before);
  stages::reach("resumed");
  for (const Block& block : weights) expect_filled(block, "weights are back where they were");
  expect_the_rest();
  fill(cache);
  expect_filled(cache, "the cache can be used again");
}

}  // namespace

int main(int count, char** words) {
  check(cudaFree(nullptr), "start");
  const Saver saver = find_saver(count > 1 ? words[1] : nullptr);
  void* plain = nullptr;
  void* ordered = nullptr;
  check(cudaMalloc(&plain, 8 * MiB), "cudaMalloc");
  check(cudaMallocAsync(&ordered, 16 * MiB, nullptr), "cudaMallocAsync");
  const std::vector<Block> outside{{static_cast<std::uint8_t*>(plain), 8 * MiB, 1},
                                   {static_cast<std::uint8_t*>(ordered), 16 * MiB, 2}};
  for (const Block& block : outside) fill(block);
  std::vector<Block> weights;
  for (const std::size_t size : {12 * MiB, 5 * MiB, MiB / 2}) {
    weights.push_back(allocate_in_region(saver, "weights", Backup::Host, size,
                                         static_cast<std::uint32_t>(weights.size()) + 3));
  }
  const Block cache = allocate_in_region(saver, "cache", Backup::None, 16 * MiB, 9);
  stages::reach("held");
  for (int turn = 0; turn < 2; ++turn) take_a_turn(saver, weights, cache, outside);

  const long long free_before = free_mib();
  for (const Block& block : weights) release(saver, block);
  release(saver, cache);
  report_freed(free_before);
  check(cudaFree(plain), "cudaFree");
  check(cudaFreeAsync(ordered, nullptr), "cudaFreeAsync");
  check(cudaDeviceSynchronize(), "end");
  stages::reach("freed");
  return 0;
}
