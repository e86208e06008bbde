// SPDX-License-Identifier: Apache-2.0
// 64 threads that start the engine, look functions up and allocate at once. This is the thread
// sanitizer's view of the hooks, since it cannot be preloaded into other programs.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "hook_sim/doors.hpp"
#include "support/scale.hpp"

namespace cuvmm::test {
namespace {

constexpr int threads = 64;

template <class Work>
void in_all_threads(Work&& work) {
  std::atomic<int> ready{0};
  std::vector<std::thread> all;
  for (int i = 0; i < threads; ++i) {
    all.emplace_back([&, i] {
      ++ready;
      while (ready < threads) std::this_thread::yield();
      work(i);
    });
  }
  for (std::thread& one : all) one.join();
}

void* ask_for(const char* name, int version, cuuint64_t flags) {
  void* found = nullptr;
  CUdriverProcAddressQueryResult status{};
  const CUresult answer =
      through_door<Call::cuGetProcAddress_v2>(name, &found, version, flags, &status);
  return answer == CUDA_SUCCESS ? found : nullptr;
}

void use_memory(std::atomic<int>& failures) {
  const auto count = [&](CUresult answer) { failures += answer != CUDA_SUCCESS; };
  CUcontext context = nullptr;
  count(through_door<Call::cuInit>(0u));
  count(through_door<Call::cuDevicePrimaryCtxRetain>(&context, 0));
  count(through_door<Call::cuCtxSetCurrent>(context));
  for (std::uint64_t i = 0; i < scaled(20); ++i) {
    CUdeviceptr blocking = 0;
    CUdeviceptr ordered = 0;
    CUstream stream = nullptr;
    count(through_door<Call::cuStreamCreate>(&stream, 0u));
    count(through_door<Call::cuMemAlloc_v2>(&blocking, std::size_t{65536}));
    count(through_door<Call::cuMemAllocAsync>(&ordered, std::size_t{4096}, stream));
    count(through_door<Call::cuMemcpyDtoDAsync_v2>(ordered, blocking, std::size_t{4096}, stream));
    count(through_door<Call::cuMemFreeAsync>(ordered, stream));
    count(through_door<Call::cuMemFree_v2>(blocking));
    count(through_door<Call::cuStreamDestroy_v2>(stream));
  }
}

// Must be the first test, so that the engine does not exist yet.
TEST(ManyThreads, StartOneEngine) {
  open_driver();
  std::vector<Engine*> engines(threads);
  in_all_threads([&](int i) { engines[static_cast<std::size_t>(i)] = Engine::get(); });
  for (const Engine* one : engines) EXPECT_EQ(one, Engine::running());
  EXPECT_NE(Engine::running(), nullptr);
}

TEST(ManyThreads, FindTheSameDoors) {
  const void* expected = look_up("cuMemAlloc_v2");
  std::atomic<int> wrong{0};
  in_all_threads([&](int i) {
    for (const CallInfo& row : all_calls()) wrong += look_up(row.symbol) == nullptr;
    const void* found = ask_for("cuMemAlloc", 12000, static_cast<cuuint64_t>(i % 3));
    wrong += found != expected;
    wrong += look_up("cuMemAlloc_v2") != expected;
  });
  EXPECT_EQ(wrong, 0);
}

TEST(ManyThreads, AllocateThroughTheDoors) {
  std::atomic<int> failures{0};
  in_all_threads([&](int) { use_memory(failures); });
  EXPECT_EQ(failures, 0);
}

}  // namespace
}  // namespace cuvmm::test
