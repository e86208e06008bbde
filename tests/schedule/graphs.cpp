// SPDX-License-Identifier: Apache-2.0
// Graphs whose nodes use events of the program, and launches of one graph, beside queued work.
#include <chrono>
#include <functional>
#include <thread>

#include "schedule/schedule_world.hpp"

namespace cuvmm::test {
namespace {

// A graph that copies the first of two words to the second, perhaps once an event has occurred.
class CopyGraph {
 public:
  explicit CopyGraph(const Kernels& kernels, CUevent event = nullptr) {
    GIVEN(hooked().cuMemAlloc(&memory_, 8));
    GIVEN(hooked().cuMemsetD32(memory_, 0, 2));
    GIVEN(hooked().cuGraphCreate(&graph_, 0));
    CUgraphNode wait = nullptr;
    if (event != nullptr) {
      GIVEN(hooked().cuGraphAddEventWaitNode(&wait, graph_, nullptr, 0, event));
    }
    std::uint64_t to = memory_ + 4;
    std::uint64_t from = memory_;
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
    CUgraphNode copy = nullptr;
    GIVEN(hooked().cuGraphAddKernelNode(&copy, graph_, &wait, event != nullptr ? 1 : 0, &launch));
    GIVEN(hooked().cuGraphInstantiateWithFlags(&exec_, graph_, 0));
    GIVEN(hooked().cuCtxSynchronize_v2000());
  }
  ~CopyGraph() {
    EXPECT_CUDA(hooked().cuGraphExecDestroy(exec_));
    EXPECT_CUDA(hooked().cuGraphDestroy(graph_));
    EXPECT_CUDA(hooked().cuMemFree(memory_));
  }
  CopyGraph(const CopyGraph&) = delete;
  CopyGraph& operator=(const CopyGraph&) = delete;

  CUgraphExec exec() const { return exec_; }
  std::uint64_t from() const { return memory_; }
  std::uint32_t copied() const {
    std::uint32_t found[2] = {};
    EXPECT_CUDA(hooked().cuMemcpyDtoH(found, memory_, sizeof found));
    return found[1];
  }

 private:
  CUdeviceptr memory_ = 0;
  CUgraph graph_ = nullptr;
  CUgraphExec exec_ = nullptr;
};

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
  CUevent event = nullptr;
  ASSERT_CUDA(hooked().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  {
    const CopyGraph graph{kernels, event};
    low.bind();
    for (int i = 0; i < 10; ++i) {
      ASSERT_CUDA(launch_hooked(kernels.spin, slow.get(), std::uint64_t{3'000'000}));
    }
    ASSERT_CUDA(launch_hooked(kernels.fill, slow.get(), graph.from(), 7u, 1u));
    ASSERT_CUDA(hooked().cuEventRecord(event, slow));
    high.bind();
    ASSERT_CUDA(hooked().cuGraphLaunch(graph.exec(), stream));
    ASSERT_CUDA(hooked().cuStreamSynchronize(stream));
    EXPECT_EQ(graph.copied(), 7U) << "it was copied before the record that the graph waits for";
  }
  EXPECT_CUDA(hooked().cuEventDestroy(event));
}

// The driver runs them one after the other, whatever streams they are launched in.
void expect_launches_in_order(const std::function<void()>& begin_second) {
  const Kernels kernels;
  const HookedStream first;
  const HookedStream second;
  const CopyGraph graph{kernels};
  const auto wait = [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds{100}); };
  ASSERT_CUDA(hooked().cuLaunchHostFunc(first, wait, nullptr));
  ASSERT_CUDA(launch_hooked(kernels.fill, first.get(), graph.from(), 7u, 1u));
  ASSERT_CUDA(hooked().cuGraphLaunch(graph.exec(), first));
  begin_second();
  ASSERT_CUDA(hooked().cuGraphLaunch(graph.exec(), second));
  ASSERT_CUDA(hooked().cuStreamSynchronize(second));
  EXPECT_EQ(graph.copied(), 7U);
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
