// SPDX-License-Identifier: Apache-2.0
// Instantiated graphs: launched repeatedly, updated, uploaded, destroyed.
#include "streams_support.hpp"

namespace cuvmm::test {
namespace {

class GraphLaunches : public DriverContract {
 protected:
  void SetUp() override {
    DriverContract::SetUp();
    memory_ = std::make_unique<GivenBlocking>(4 * KiB);
    ASSERT_CUDA(driver().cuMemsetD8(memory_->address(), 0, 4 * KiB));
    ASSERT_CUDA(synchronize());
  }
  void TearDown() override {
    memory_.reset();
    DriverContract::TearDown();
  }
  CUdeviceptr word(int index) const { return memory_->address() + 64u * static_cast<Size>(index); }

  // Captures the work that is given to a stream into a graph.
  template <class Work>
  GivenGraph captured(const Work& work) {
    const GivenStream stream;
    GIVEN(driver().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    work(stream.get());
    CUgraph graph = nullptr;
    GIVEN(driver().cuStreamEndCapture(stream, &graph));
    return GivenGraph{graph};
  }
  GivenGraph one_increment() {
    const CUfunction add_one = kernels().add_one;
    return captured(
        [&](CUstream stream) { ASSERT_CUDA(launch(add_one, stream, word(0), std::uint32_t{1})); });
  }

 private:
  std::unique_ptr<GivenBlocking> memory_;
};

TEST_F(GraphLaunches, EveryLaunchRunsTheWholeGraph) {
  const GivenStream stream;
  const GivenGraph graph = one_increment();
  const GivenExec exec{graph};

  for (int i = 0; i < 10; ++i) ASSERT_CUDA(exec.launch(stream));
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  EXPECT_EQ(read_word(word(0)), 10u);
}

TEST_F(GraphLaunches, ALaunchIsOrderedWithItsStream) {
  const GivenStream stream;
  const GivenGraph graph = one_increment();
  const GivenExec exec{graph};
  ASSERT_CUDA(driver().cuMemsetD32Async(word(0), 100, 1, stream));

  ASSERT_CUDA(exec.launch(stream));
  ASSERT_CUDA(driver().cuMemcpyDtoDAsync(word(1), word(0), 4, stream));
  ASSERT_CUDA(exec.launch(stream));
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  EXPECT_EQ(read_word(word(1)), 101u);
  EXPECT_EQ(read_word(word(0)), 102u);
}

TEST_F(GraphLaunches, ALaunchDoesNotWait) {
  const GivenStream stream;
  const GivenGraph graph = one_increment();
  const GivenExec exec{graph};
  SlowWork work{kernels(), stream};

  EXPECT_CUDA(exec.launch(stream));

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(stream));
  work.end();
}

TEST_F(GraphLaunches, OneInstanceDoesNotRunBesideItself) {
  const GivenStream first;
  const GivenStream second;
  HostFlag flag;
  const CUfunction wait_for_flag = kernels().wait_for_flag;
  const GivenGraph graph = captured([&](CUstream stream) {
    ASSERT_CUDA(launch(wait_for_flag, stream, Shape{1, 1}, flag.address()));
  });
  const GivenExec exec{graph};
  ASSERT_CUDA(exec.launch(first));

  ASSERT_CUDA(exec.launch(second));
  ASSERT_CUDA(driver().cuMemsetD32Async(word(0), 1, 1, second));

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(second));
  flag.set();
  EXPECT_CUDA(driver().cuStreamSynchronize(second));
  EXPECT_CUDA(driver().cuStreamSynchronize(first));
  EXPECT_FALSE(flag.given_up_on());
}

TEST_F(GraphLaunches, AnInstanceOutlivesItsGraph) {
  const GivenStream stream;
  std::unique_ptr<GivenExec> exec;
  {
    const GivenGraph graph = one_increment();
    exec = std::make_unique<GivenExec>(graph);
  }

  ASSERT_CUDA(exec->launch(stream));
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  EXPECT_EQ(read_word(word(0)), 1u);
}

TEST_F(GraphLaunches, ALaunchSurvivesTheDestructionOfItsInstance) {
  const GivenStream stream;
  const GivenGraph graph = one_increment();
  SlowWork work{kernels(), stream};
  {
    const GivenExec exec{graph};
    ASSERT_CUDA(exec.launch(stream));
  }

  work.end();
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  EXPECT_EQ(read_word(word(0)), 1u);
}

TEST_F(GraphLaunches, ChangingTheGraphDoesNotChangeTheInstance) {
  const GivenStream stream;
  const GivenGraph graph = captured([&](CUstream capturing) {
    ASSERT_CUDA(driver().cuMemsetD32Async(word(0), 1, 1, capturing));
  });
  const GivenExec exec{graph};
  const CUgraphNode node = graph.nodes().at(0);
  CUDA_MEMSET_NODE_PARAMS set{};
  ASSERT_CUDA(driver().cuGraphMemsetNodeGetParams(node, &set));
  set.value = 9;

  ASSERT_CUDA(driver().cuGraphMemsetNodeSetParams(node, &set));
  ASSERT_CUDA(exec.launch(stream));
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  EXPECT_EQ(read_word(word(0)), 1u);
}

TEST_F(GraphLaunches, ASetInAnInstanceMayBeChanged) {
  const GivenStream stream;
  const GivenGraph graph = captured([&](CUstream capturing) {
    ASSERT_CUDA(driver().cuMemsetD32Async(word(0), 1, 1, capturing));
  });
  const GivenExec exec{graph};
  const CUgraphNode node = graph.nodes().at(0);
  CUDA_MEMSET_NODE_PARAMS set{};
  ASSERT_CUDA(driver().cuGraphMemsetNodeGetParams(node, &set));
  set.value = 9;

  ASSERT_CUDA(driver().cuGraphExecMemsetNodeSetParams(exec, node, &set, primary()));
  ASSERT_CUDA(exec.launch(stream));
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  EXPECT_EQ(read_word(word(0)), 9u);
}

TEST_F(GraphLaunches, AKernelInAnInstanceMayBeChanged) {
  const GivenStream stream;
  const GivenGraph graph = one_increment();
  const GivenExec exec{graph};
  const CUgraphNode node = graph.nodes().at(0);
  CUDA_KERNEL_NODE_PARAMS_v2 kernel{};
  ASSERT_CUDA(driver().cuGraphKernelNodeGetParams(node, &kernel));
  CUdeviceptr elsewhere = word(5);
  std::uint32_t count = 1;
  void* parameters[] = {&elsewhere, &count, nullptr};
  kernel.kernelParams = parameters;
  kernel.extra = nullptr;

  ASSERT_CUDA(driver().cuGraphExecKernelNodeSetParams(exec, node, &kernel));
  ASSERT_CUDA(exec.launch(stream));
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  EXPECT_EQ(read_word(word(0)), 0u);
  EXPECT_EQ(read_word(word(5)), 1u);
}

TEST_F(GraphLaunches, AnInstanceTakesOverAGraphOfTheSameShape) {
  const GivenStream stream;
  const GivenGraph old_graph = captured([&](CUstream capturing) {
    ASSERT_CUDA(driver().cuMemsetD32Async(word(0), 1, 1, capturing));
  });
  const GivenGraph new_graph = captured([&](CUstream capturing) {
    ASSERT_CUDA(driver().cuMemsetD32Async(word(0), 2, 1, capturing));
  });
  const GivenExec exec{old_graph};
  CUgraphNode culprit = nullptr;
  CUgraphExecUpdateResult outcome{};

  ASSERT_CUDA(driver().cuGraphExecUpdate_v10020(exec, new_graph, &culprit, &outcome));
  ASSERT_CUDA(exec.launch(stream));
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  EXPECT_EQ(outcome, CU_GRAPH_EXEC_UPDATE_SUCCESS);
  EXPECT_EQ(read_word(word(0)), 2u);
}

TEST_F(GraphLaunches, AnInstanceRefusesAGraphOfAnotherShape) {
  const GivenStream stream;
  const GivenGraph old_graph = one_increment();
  const GivenGraph longer = captured([&](CUstream capturing) {
    ASSERT_CUDA(driver().cuMemsetD32Async(word(0), 2, 1, capturing));
    ASSERT_CUDA(driver().cuMemsetD32Async(word(1), 2, 1, capturing));
  });
  const GivenExec exec{old_graph};
  CUgraphExecUpdateResultInfo outcome{};

  EXPECT_ANSWER(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
                driver().cuGraphExecUpdate(exec, longer, &outcome));

  EXPECT_NE(outcome.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
  ASSERT_CUDA(exec.launch(stream));
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));
  EXPECT_EQ(read_word(word(0)), 1u) << "the instance is what it was";
}

TEST_F(GraphLaunches, AnUploadIsNoLaunch) {
  const GivenStream stream;
  const GivenGraph graph = one_increment();
  const GivenExec exec{graph};

  EXPECT_CUDA(driver().cuGraphUpload(exec, stream));
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));
  EXPECT_EQ(read_word(word(0)), 0u);

  ASSERT_CUDA(exec.launch(stream));
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));
  EXPECT_EQ(read_word(word(0)), 1u);
}

TEST_F(GraphLaunches, TheOldInstantiateSignatureWorks) {
  const GivenStream stream;
  const GivenGraph graph = one_increment();
  CUgraphExec exec = nullptr;
  char log[256] = {};
  CUgraphNode culprit = nullptr;

  ASSERT_CUDA(driver().cuGraphInstantiate(&exec, graph, &culprit, log, sizeof log));
  EXPECT_CUDA(driver().cuGraphLaunch(exec, stream));
  EXPECT_CUDA(driver().cuStreamSynchronize(stream));

  EXPECT_EQ(read_word(word(0)), 1u);
  EXPECT_CUDA(driver().cuGraphExecDestroy(exec));
}

TEST_F(GraphLaunches, ACapturedForkAndJoinReplaysCorrectly) {
  const GivenStream stream;
  const GivenStream side;
  const GivenEvent fork;
  const GivenEvent join;
  const CUfunction add_one = kernels().add_one;
  const GivenGraph graph = captured([&](CUstream origin) {
    ASSERT_CUDA(driver().cuMemsetD32Async(word(0), 10, 1, origin));
    ASSERT_CUDA(driver().cuEventRecord(fork, origin));
    ASSERT_CUDA(driver().cuStreamWaitEvent(side, fork, 0));
    ASSERT_CUDA(driver().cuMemcpyDtoDAsync(word(1), word(0), 4, side));
    ASSERT_CUDA(launch(add_one, side, word(1), std::uint32_t{1}));
    ASSERT_CUDA(driver().cuMemcpyDtoDAsync(word(2), word(0), 4, origin));
    ASSERT_CUDA(driver().cuEventRecord(join, side));
    ASSERT_CUDA(driver().cuStreamWaitEvent(origin, join, 0));
    ASSERT_CUDA(launch(add_one, origin, word(1), std::uint32_t{1}));
  });
  const GivenExec exec{graph};

  ASSERT_CUDA(exec.launch(stream));
  ASSERT_CUDA(exec.launch(stream));
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  EXPECT_EQ(read_word(word(0)), 10u);
  EXPECT_EQ(read_word(word(1)), 12u);
  EXPECT_EQ(read_word(word(2)), 10u);
}

TEST_F(GraphLaunches, MemoryLeftByAGraphIsFreedByItsStream) {
  const GivenStream stream;
  CUdeviceptr memory = 0;
  const GivenGraph graph = captured([&](CUstream capturing) {
    ASSERT_CUDA(driver().cuMemAllocAsync(&memory, 1 * MiB, capturing));
    ASSERT_CUDA(driver().cuMemsetD32Async(memory, 13, 1, capturing));
  });
  const GivenExec exec{graph};

  ASSERT_CUDA(exec.launch(stream));
  ASSERT_CUDA(driver().cuMemcpyDtoDAsync(word(0), memory, 4, stream));
  ASSERT_CUDA(driver().cuMemFreeAsync(memory, stream));
  ASSERT_CUDA(exec.launch(stream)) << "freed, so it may be launched again";
  ASSERT_CUDA(driver().cuMemFreeAsync(memory, stream));
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  EXPECT_EQ(read_word(word(0)), 13u);
  EXPECT_CUDA(driver().cuDeviceGraphMemTrim(device()));
}

TEST_F(GraphLaunches, AGraphWhoseMemoryIsStillHeldCannotBeLaunchedAgain) {
  const GivenStream stream;
  CUdeviceptr memory = 0;
  const GivenGraph graph = captured([&](CUstream capturing) {
    ASSERT_CUDA(driver().cuMemAllocAsync(&memory, 1 * MiB, capturing));
  });
  const GivenExec exec{graph};
  ASSERT_CUDA(exec.launch(stream));

  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, exec.launch(stream));

  EXPECT_CUDA(driver().cuMemFreeAsync(memory, stream));
  EXPECT_CUDA(driver().cuStreamSynchronize(stream));
  EXPECT_CUDA(driver().cuDeviceGraphMemTrim(device()));
}

TEST_F(GraphLaunches, AutoFreeLetsAGraphBeLaunchedAgain) {
  const GivenStream stream;
  CUdeviceptr memory = 0;
  const GivenGraph graph = captured([&](CUstream capturing) {
    ASSERT_CUDA(driver().cuMemAllocAsync(&memory, 1 * MiB, capturing));
  });
  const GivenExec exec{graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH};

  EXPECT_CUDA(exec.launch(stream));
  EXPECT_CUDA(exec.launch(stream));

  EXPECT_CUDA(driver().cuMemFreeAsync(memory, stream));
  EXPECT_CUDA(driver().cuStreamSynchronize(stream));
  EXPECT_CUDA(driver().cuDeviceGraphMemTrim(device()));
}

TEST_F(GraphLaunches, ACycleIsRefused) {
  const GivenGraph graph;
  CUgraphNode first = nullptr;
  CUgraphNode second = nullptr;
  ASSERT_CUDA(driver().cuGraphAddEmptyNode(&first, graph, nullptr, 0));
  ASSERT_CUDA(driver().cuGraphAddEmptyNode(&second, graph, &first, 1));

  EXPECT_CUDA(driver().cuGraphAddDependencies_v10000(graph, &second, &first, 1));
  CUgraphExec exec = nullptr;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuGraphInstantiateWithFlags(&exec, graph, 0));
}

}  // namespace
}  // namespace cuvmm::test
