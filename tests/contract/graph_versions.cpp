// SPDX-License-Identifier: Apache-2.0
// Graph operations through other signatures and less common calls.
#include <atomic>

#include "streams_support.hpp"

namespace cuvmm::test {
namespace {

class GraphVersions : public DriverContract {
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

  void run(CUgraph graph) const {
    const GivenStream stream;
    const GivenExec exec{graph};
    ASSERT_CUDA(exec.launch(stream));
    ASSERT_CUDA(driver().cuStreamSynchronize(stream));
  }
  CUgraphNode add_set(CUgraph graph, CUdeviceptr to, unsigned value) const {
    CUDA_MEMSET_NODE_PARAMS set{};
    set.dst = to;
    set.value = value;
    set.elementSize = 4;
    set.width = 1;
    set.height = 1;
    CUgraphNode node = nullptr;
    GIVEN(driver().cuGraphAddMemsetNode(&node, graph, nullptr, 0, &set, primary()));
    return node;
  }

 private:
  std::unique_ptr<GivenBlocking> memory_;
};

TEST_F(GraphVersions, AKernelNodeInTheFirstSignature) {
  const GivenGraph graph;
  CUdeviceptr address = word(0);
  std::uint32_t count = 1;
  void* parameters[] = {&address, &count, nullptr};
  CUDA_KERNEL_NODE_PARAMS_v1 kernel{};
  kernel.func = kernels().add_one;
  kernel.gridDimX = kernel.gridDimY = kernel.gridDimZ = 1;
  kernel.blockDimX = kernel.blockDimY = kernel.blockDimZ = 1;
  kernel.kernelParams = parameters;
  CUgraphNode node = nullptr;

  ASSERT_CUDA(driver().cuGraphAddKernelNode_v10000(&node, graph, nullptr, 0, &kernel));
  run(graph);

  EXPECT_EQ(read_word(word(0)), 1u);
}

TEST_F(GraphVersions, NodesByTheGenericCall) {
  NEEDS_CALL(cuGraphAddNode_v2);
  const GivenGraph graph;
  CUgraphNodeParams set{};
  set.type = CU_GRAPH_NODE_TYPE_MEMSET;
  set.memset.dst = word(0);
  set.memset.value = 21;
  set.memset.elementSize = 4;
  set.memset.width = 1;
  set.memset.height = 1;
  set.memset.ctx = primary();
  CUgraphNodeParams empty{};
  empty.type = CU_GRAPH_NODE_TYPE_EMPTY;
  CUgraphNode first = nullptr;
  CUgraphNode second = nullptr;

  ASSERT_CUDA(driver().cuGraphAddNode(&first, graph, nullptr, nullptr, 0, &set));
  ASSERT_CUDA(driver().cuGraphAddNode(&second, graph, &first, nullptr, 1, &empty));
  run(graph);

  EXPECT_EQ(type_of(first), CU_GRAPH_NODE_TYPE_MEMSET);
  EXPECT_EQ(type_of(second), CU_GRAPH_NODE_TYPE_EMPTY);
  EXPECT_EQ(read_word(word(0)), 21u);
}

TEST_F(GraphVersions, QueriesInTheSecondSignature) {
  NEEDS_CALL(cuGraphGetEdges_v2);
  const GivenGraph graph;
  CUgraphNode first = nullptr;
  CUgraphNode second = nullptr;
  ASSERT_CUDA(driver().cuGraphAddEmptyNode(&first, graph, nullptr, 0));
  ASSERT_CUDA(driver().cuGraphAddEmptyNode(&second, graph, nullptr, 0));
  ASSERT_CUDA(driver().cuGraphAddDependencies(graph, &first, &second, nullptr, 1));
  CUgraphNode from = nullptr;
  CUgraphNode to = nullptr;
  CUgraphEdgeData data{};
  size_t count = 1;

  EXPECT_CUDA(driver().cuGraphGetEdges(graph, &from, &to, &data, &count));
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(from, first);
  EXPECT_EQ(to, second);
  count = 1;
  EXPECT_CUDA(driver().cuGraphNodeGetDependencies(second, &from, &data, &count));
  EXPECT_EQ(from, first);
  count = 1;
  EXPECT_CUDA(driver().cuGraphNodeGetDependentNodes(first, &to, &data, &count));
  EXPECT_EQ(to, second);
  EXPECT_CUDA(driver().cuGraphRemoveDependencies(graph, &first, &second, nullptr, 1));
  EXPECT_CUDA(driver().cuGraphGetEdges(graph, nullptr, nullptr, nullptr, &count));
  EXPECT_EQ(count, 0u);
}

TEST_F(GraphVersions, ADisabledNodeIsSkipped) {
  NEEDS_CALL(cuGraphNodeSetEnabled);
  const GivenGraph graph;
  const GivenStream stream;
  const CUgraphNode first = add_set(graph, word(0), 1);
  add_set(graph, word(1), 1);
  const GivenExec exec{graph};
  unsigned enabled = 9;

  ASSERT_CUDA(driver().cuGraphNodeSetEnabled(exec, first, 0));
  ASSERT_CUDA(driver().cuGraphNodeGetEnabled(exec, first, &enabled));
  ASSERT_CUDA(exec.launch(stream));
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  EXPECT_EQ(enabled, 0u);
  EXPECT_EQ(read_word(word(0)), 0u);
  EXPECT_EQ(read_word(word(1)), 1u);
}

TEST_F(GraphVersions, InstantiationWithParametersReportsItsResult) {
  NEEDS_CALL(cuGraphInstantiateWithParams);
  const GivenGraph graph;
  const GivenStream stream;
  add_set(graph, word(0), 5);
  CUDA_GRAPH_INSTANTIATE_PARAMS parameters{};
  CUgraphExec exec = nullptr;

  ASSERT_CUDA(driver().cuGraphInstantiateWithParams(&exec, graph, &parameters));
  EXPECT_CUDA(driver().cuGraphLaunch(exec, stream));
  EXPECT_CUDA(driver().cuStreamSynchronize(stream));

  EXPECT_EQ(parameters.result_out, CUDA_GRAPH_INSTANTIATE_SUCCESS);
  EXPECT_EQ(read_word(word(0)), 5u);
  EXPECT_CUDA(driver().cuGraphExecDestroy(exec));
}

TEST_F(GraphVersions, ValueOperationsAreNodesToo) {
  NEEDS_CALL(cuGraphAddBatchMemOpNode);
  const GivenGraph graph;
  CUstreamBatchMemOpParams write{};
  write.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  write.writeValue.address = word(2);
  write.writeValue.value = 77;
  write.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
  CUDA_BATCH_MEM_OP_NODE_PARAMS batch{};
  batch.ctx = primary();
  batch.count = 1;
  batch.paramArray = &write;
  CUgraphNode node = nullptr;

  ASSERT_CUDA(driver().cuGraphAddBatchMemOpNode(&node, graph, nullptr, 0, &batch));
  run(graph);

  EXPECT_EQ(type_of(node), CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
  EXPECT_EQ(read_word(word(2)), 77u);
}

TEST_F(GraphVersions, AUserObjectDiesWithTheGraphThatHoldsIt) {
  static std::atomic<int> destroyed;
  destroyed = 0;
  CUuserObject object = nullptr;
  ASSERT_CUDA(driver().cuUserObjectCreate(
      &object, nullptr, [](void*) { ++destroyed; }, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  {
    const GivenGraph graph;
    ASSERT_CUDA(driver().cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    EXPECT_EQ(destroyed, 0);
  }

  // The destructor may run later, on another thread.
  for (int i = 0; i < 20'000 && destroyed == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  EXPECT_EQ(destroyed, 1);
}

TEST_F(GraphVersions, AGraphsMemoryIsCountedAndTrimmed) {
  const GivenStream stream;
  CUdeviceptr memory = 0;
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  ASSERT_CUDA(driver().cuMemAllocAsync(&memory, 2 * MiB, stream));
  ASSERT_CUDA(driver().cuMemFreeAsync(memory, stream));
  const GivenGraph graph = end_capture(stream);
  {
    const GivenExec exec{graph};
    ASSERT_CUDA(exec.launch(stream));
    ASSERT_CUDA(driver().cuStreamSynchronize(stream));
  }
  cuuint64_t reserved_bytes = 1;
  EXPECT_CUDA(driver().cuDeviceGraphMemTrim(device()));

  EXPECT_CUDA(driver().cuDeviceGetGraphMemAttribute(
      device(), CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved_bytes));

  EXPECT_EQ(reserved_bytes, 0u);
}

}  // namespace
}  // namespace cuvmm::test
