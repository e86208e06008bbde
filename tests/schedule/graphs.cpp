// SPDX-License-Identifier: Apache-2.0
// Graphs whose nodes use events of the program, and launches of one graph, beside queued work.
#include <chrono>
#include <functional>
#include <thread>

#include "schedule/schedule_world.hpp"

namespace cuvmm::test {
namespace {

// The record must have been issued to the driver before the graph is.
TEST(GraphsThatWaitForEvents, ComeAfterTheRecordsOfOtherClients) {
  const Deadline deadline;
  const GivenContext context;
  const Kernels kernels;
  const Scheduled scheduled{Schedule::Priority};
  const GivenClient low{"low"};
  const GivenClient high{"high", 5};
  const HookedStream slow;
  const HookedStream stream;
  CUdeviceptr memory = 0;
  CUevent event = nullptr;
  CUgraph graph = nullptr;
  CUgraphNode wait = nullptr;
  CUgraphNode copy = nullptr;
  CUgraphExec exec = nullptr;
  ASSERT_CUDA(hooked().cuMemAlloc(&memory, 8));
  ASSERT_CUDA(hooked().cuMemsetD32(memory, 0, 2));
  ASSERT_CUDA(hooked().cuCtxSynchronize_v2000());
  ASSERT_CUDA(hooked().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  ASSERT_CUDA(hooked().cuGraphCreate(&graph, 0));
  ASSERT_CUDA(hooked().cuGraphAddEventWaitNode(&wait, graph, nullptr, 0, event));
  std::uint64_t to = memory + 4;
  std::uint64_t from = memory;
  unsigned words = 1;
  void* parameters[] = {&to, &from, &words};
  const CUDA_KERNEL_NODE_PARAMS launch{.func = kernels.copy_words,
                                       .gridDimX = 1,
                                       .gridDimY = 1,
                                       .gridDimZ = 1,
                                       .blockDimX = 1,
                                       .blockDimY = 1,
                                       .blockDimZ = 1,
                                       .kernelParams = parameters};
  ASSERT_CUDA(hooked().cuGraphAddKernelNode(&copy, graph, &wait, 1, &launch));
  ASSERT_CUDA(hooked().cuGraphInstantiateWithFlags(&exec, graph, 0));
  low.bind();
  for (int i = 0; i < 10; ++i) {
    ASSERT_CUDA(launch_hooked(kernels.spin, slow.get(), std::uint64_t{3'000'000}));
  }
  ASSERT_CUDA(launch_hooked(kernels.fill, slow.get(), std::uint64_t{memory}, 7u, 1u));
  ASSERT_CUDA(hooked().cuEventRecord(event, slow));
  high.bind();
  ASSERT_CUDA(hooked().cuGraphLaunch(exec, stream));
  ASSERT_CUDA(hooked().cuStreamSynchronize(stream));
  std::uint32_t found[2] = {};
  ASSERT_CUDA(hooked().cuMemcpyDtoH(found, memory, sizeof found));
  EXPECT_EQ(found[1], 7U) << "it was copied before the record that the graph waits for";
  EXPECT_CUDA(hooked().cuGraphExecDestroy(exec));
  EXPECT_CUDA(hooked().cuGraphDestroy(graph));
  EXPECT_CUDA(hooked().cuEventDestroy(event));
  EXPECT_CUDA(hooked().cuMemFree(memory));
}

// The driver runs them one after the other, whatever streams they are launched in.
void expect_launches_in_order(const std::function<void()>& begin_second) {
  const Kernels kernels;
  const HookedStream first;
  const HookedStream second;
  CUdeviceptr memory = 0;
  CUgraph graph = nullptr;
  CUgraphNode copy = nullptr;
  CUgraphExec exec = nullptr;
  ASSERT_CUDA(hooked().cuMemAlloc(&memory, 8));
  ASSERT_CUDA(hooked().cuMemsetD32(memory, 0, 2));
  ASSERT_CUDA(hooked().cuGraphCreate(&graph, 0));
  std::uint64_t to = memory + 4;
  std::uint64_t from = memory;
  unsigned words = 1;
  void* parameters[] = {&to, &from, &words};
  const CUDA_KERNEL_NODE_PARAMS launch{.func = kernels.copy_words,
                                       .gridDimX = 1,
                                       .gridDimY = 1,
                                       .gridDimZ = 1,
                                       .blockDimX = 1,
                                       .blockDimY = 1,
                                       .blockDimZ = 1,
                                       .kernelParams = parameters};
  ASSERT_CUDA(hooked().cuGraphAddKernelNode(&copy, graph, nullptr, 0, &launch));
  ASSERT_CUDA(hooked().cuGraphInstantiateWithFlags(&exec, graph, 0));
  ASSERT_CUDA(hooked().cuCtxSynchronize_v2000());
  const auto wait = [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds{100}); };
  ASSERT_CUDA(hooked().cuLaunchHostFunc(first, wait, nullptr));
  ASSERT_CUDA(launch_hooked(kernels.fill, first.get(), std::uint64_t{memory}, 7u, 1u));
  ASSERT_CUDA(hooked().cuGraphLaunch(exec, first));
  begin_second();
  ASSERT_CUDA(hooked().cuGraphLaunch(exec, second));
  ASSERT_CUDA(hooked().cuStreamSynchronize(second));
  std::uint32_t found[2] = {};
  ASSERT_CUDA(hooked().cuMemcpyDtoH(found, memory, sizeof found));
  EXPECT_EQ(found[1], 7U);
  EXPECT_CUDA(hooked().cuGraphExecDestroy(exec));
  EXPECT_CUDA(hooked().cuGraphDestroy(graph));
  EXPECT_CUDA(hooked().cuMemFree(memory));
}

TEST(LaunchesOfOneGraph, KeepTheirOrderBetweenClients) {
  const Deadline deadline;
  const GivenContext context;
  const Scheduled scheduled{Schedule::Priority};
  const GivenClient low{"low"};
  const GivenClient high{"high", 5};
  low.bind();
  expect_launches_in_order([&] { high.bind(); });
}

TEST(LaunchesOfOneGraph, KeepTheirOrderBeforeOneWithoutAClient) {
  const Deadline deadline;
  const GivenContext context;
  const Scheduled scheduled{Schedule::Priority};
  const GivenClient low{"low"};
  const GivenClient high{"high", 5};
  const HookedStream busy;
  const Kernels kernels;
  high.bind();
  for (int i = 0; i < 10; ++i) {
    ASSERT_CUDA(launch_hooked(kernels.spin, busy.get(), std::uint64_t{3'000'000}));
  }
  low.bind();
  expect_launches_in_order([] { scheduling().parts()->scheduler.bind_this_thread(nullptr); });
}

}  // namespace
}  // namespace cuvmm::test
