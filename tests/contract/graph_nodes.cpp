// SPDX-License-Identifier: Apache-2.0
// Graphs built node by node.
#include "streams_support.hpp"

namespace cuvmm::test {
namespace {

class GraphNodes : public DriverContract {
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

  CUgraphNode add_set(CUgraph graph, std::vector<CUgraphNode> after, CUdeviceptr to,
                      unsigned value) const {
    const CUDA_MEMSET_NODE_PARAMS set = set_of(to, value);
    CUgraphNode node = nullptr;
    GIVEN(driver().cuGraphAddMemsetNode(&node, graph, after.data(), after.size(), &set, primary()));
    return node;
  }
  static CUDA_MEMSET_NODE_PARAMS set_of(CUdeviceptr to, unsigned value) {
    CUDA_MEMSET_NODE_PARAMS set{};
    set.dst = to;
    set.value = value;
    set.elementSize = 4;
    set.width = 1;
    set.height = 1;
    return set;
  }

  CUgraphNode add_copy(CUgraph graph, std::vector<CUgraphNode> after, CUdeviceptr to,
                       CUdeviceptr from) const {
    const CUDA_MEMCPY3D copy = copy_of(to, from);
    CUgraphNode node = nullptr;
    GIVEN(
        driver().cuGraphAddMemcpyNode(&node, graph, after.data(), after.size(), &copy, primary()));
    return node;
  }
  static CUDA_MEMCPY3D copy_of(CUdeviceptr to, CUdeviceptr from) {
    return linear_copy(from, to, 4);
  }

  // Adds a node that increments the word at the address.
  CUgraphNode add_increment(CUgraph graph, std::vector<CUgraphNode> after, CUdeviceptr at) {
    std::uint32_t count = 1;
    void* parameters[] = {&at, &count, nullptr};
    const CUDA_KERNEL_NODE_PARAMS_v2 kernel = increment(parameters);
    CUgraphNode node = nullptr;
    GIVEN(driver().cuGraphAddKernelNode(&node, graph, after.data(), after.size(), &kernel));
    return node;
  }
  CUDA_KERNEL_NODE_PARAMS_v2 increment(void** parameters) {
    CUDA_KERNEL_NODE_PARAMS_v2 kernel{};
    kernel.func = kernels().add_one;
    kernel.gridDimX = kernel.gridDimY = kernel.gridDimZ = 1;
    kernel.blockDimX = 32;
    kernel.blockDimY = kernel.blockDimZ = 1;
    kernel.kernelParams = parameters;
    return kernel;
  }

  void run(CUgraph graph) const {
    const GivenStream stream;
    const GivenExec exec{graph};
    ASSERT_CUDA(exec.launch(stream));
    ASSERT_CUDA(driver().cuStreamSynchronize(stream));
  }

 private:
  std::unique_ptr<GivenBlocking> memory_;
};

TEST_F(GraphNodes, DependenciesOrderTheNodes) {
  const GivenGraph graph;
  const CUgraphNode set = add_set(graph, {}, word(0), 5);
  const CUgraphNode increment_it = add_increment(graph, {set}, word(0));
  const CUgraphNode copy = add_copy(graph, {increment_it}, word(1), word(0));
  add_set(graph, {copy}, word(0), 0);

  run(graph);

  EXPECT_EQ(read_word(word(0)), 0u);
  EXPECT_EQ(read_word(word(1)), 6u);
}

TEST_F(GraphNodes, ANodeMayDependOnSeveral) {
  const GivenGraph graph;
  const CUgraphNode left = add_set(graph, {}, word(0), 3);
  const CUgraphNode right = add_set(graph, {}, word(1), 4);
  CUgraphNode both = nullptr;
  const CUgraphNode dependencies[] = {left, right};
  ASSERT_CUDA(driver().cuGraphAddEmptyNode(&both, graph, dependencies, 2));
  add_copy(graph, {both}, word(2), word(0));
  add_copy(graph, {both}, word(3), word(1));

  run(graph);

  EXPECT_EQ(read_word(word(2)), 3u);
  EXPECT_EQ(read_word(word(3)), 4u);
}

TEST_F(GraphNodes, NodesReportTheirType) {
  const GivenGraph graph;
  const GivenEvent event;
  CUgraphNode empty = nullptr;
  CUgraphNode host = nullptr;
  CUgraphNode record = nullptr;
  CUgraphNode wait = nullptr;
  CUDA_HOST_NODE_PARAMS call{};
  call.fn = [](void*) {};
  ASSERT_CUDA(driver().cuGraphAddEmptyNode(&empty, graph, nullptr, 0));
  ASSERT_CUDA(driver().cuGraphAddHostNode(&host, graph, nullptr, 0, &call));
  ASSERT_CUDA(driver().cuGraphAddEventRecordNode(&record, graph, nullptr, 0, event));
  ASSERT_CUDA(driver().cuGraphAddEventWaitNode(&wait, graph, nullptr, 0, event));

  EXPECT_EQ(type_of(empty), CU_GRAPH_NODE_TYPE_EMPTY);
  EXPECT_EQ(type_of(host), CU_GRAPH_NODE_TYPE_HOST);
  EXPECT_EQ(type_of(record), CU_GRAPH_NODE_TYPE_EVENT_RECORD);
  EXPECT_EQ(type_of(wait), CU_GRAPH_NODE_TYPE_WAIT_EVENT);
  EXPECT_EQ(type_of(add_set(graph, {}, word(0), 1)), CU_GRAPH_NODE_TYPE_MEMSET);
  EXPECT_EQ(type_of(add_copy(graph, {}, word(1), word(0))), CU_GRAPH_NODE_TYPE_MEMCPY);
  EXPECT_EQ(type_of(add_increment(graph, {}, word(0))), CU_GRAPH_NODE_TYPE_KERNEL);
}

TEST_F(GraphNodes, AHostNodeCallsItsFunction) {
  const GivenGraph graph;
  int calls = 0;
  CUDA_HOST_NODE_PARAMS call{};
  call.fn = [](void* counter) { ++*static_cast<int*>(counter); };
  call.userData = &calls;
  CUgraphNode node = nullptr;
  ASSERT_CUDA(driver().cuGraphAddHostNode(&node, graph, nullptr, 0, &call));

  run(graph);

  EXPECT_EQ(calls, 1);
}

TEST_F(GraphNodes, KernelParametersAreCopiedWhenTheNodeIsAdded) {
  const GivenGraph graph;
  add_increment(graph, {}, word(0));  // its parameters have gone out of scope

  run(graph);

  EXPECT_EQ(read_word(word(0)), 1u);
}

TEST_F(GraphNodes, AKernelNodeRemembersItsParameters) {
  const GivenGraph graph;
  const CUgraphNode node = add_increment(graph, {}, word(3));
  CUDA_KERNEL_NODE_PARAMS_v2 found{};

  ASSERT_CUDA(driver().cuGraphKernelNodeGetParams(node, &found));

  EXPECT_EQ(found.func, kernels().add_one);
  EXPECT_EQ(found.blockDimX, 32u);
  ASSERT_NE(found.kernelParams, nullptr);
  EXPECT_EQ(*static_cast<CUdeviceptr*>(found.kernelParams[0]), word(3));
}

TEST_F(GraphNodes, ASetNodeRemembersItsParameters) {
  const GivenGraph graph;
  const CUgraphNode node = add_set(graph, {}, word(2), 17);
  CUDA_MEMSET_NODE_PARAMS found{};

  ASSERT_CUDA(driver().cuGraphMemsetNodeGetParams(node, &found));

  EXPECT_EQ(found.dst, word(2));
  EXPECT_EQ(found.value, 17u);
  EXPECT_EQ(found.elementSize, 4u);
}

TEST_F(GraphNodes, ACopyNodeRemembersItsParameters) {
  const GivenGraph graph;
  const CUgraphNode node = add_copy(graph, {}, word(2), word(1));
  CUDA_MEMCPY3D found{};

  ASSERT_CUDA(driver().cuGraphMemcpyNodeGetParams(node, &found));

  EXPECT_EQ(found.srcDevice, word(1));
  EXPECT_EQ(found.dstDevice, word(2));
  EXPECT_EQ(found.WidthInBytes, 4u);
}

TEST_F(GraphNodes, ANodesParametersMayChangeBeforeInstantiation) {
  const GivenGraph graph;
  const CUgraphNode node = add_set(graph, {}, word(0), 1);
  const CUDA_MEMSET_NODE_PARAMS changed = set_of(word(1), 2);

  ASSERT_CUDA(driver().cuGraphMemsetNodeSetParams(node, &changed));
  run(graph);

  EXPECT_EQ(read_word(word(0)), 0u);
  EXPECT_EQ(read_word(word(1)), 2u);
}

TEST_F(GraphNodes, AnEventNodeRecords) {
  const GivenGraph graph;
  const GivenEvent event;
  const GivenStream stream;
  HostFlag flag;
  CUdeviceptr flag_address = flag.address();
  void* parameters[] = {&flag_address, nullptr};
  CUDA_KERNEL_NODE_PARAMS_v2 waiting = increment(parameters);
  waiting.func = kernels().wait_for_flag;
  waiting.blockDimX = 1;
  CUgraphNode wait = nullptr;
  CUgraphNode record = nullptr;
  ASSERT_CUDA(driver().cuGraphAddKernelNode(&wait, graph, nullptr, 0, &waiting));
  ASSERT_CUDA(driver().cuGraphAddEventRecordNode(&record, graph, &wait, 1, event));
  const GivenExec exec{graph};

  ASSERT_CUDA(exec.launch(stream));

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuEventQuery(event));
  flag.set();
  EXPECT_CUDA(driver().cuEventSynchronize(event));
  EXPECT_CUDA(driver().cuStreamSynchronize(stream));
}

TEST_F(GraphNodes, AnEventNodeWaitsForTheRecordBeforeTheLaunch) {
  const GivenGraph graph;
  const GivenEvent event;
  const GivenStream slow;
  const GivenStream stream;
  CUgraphNode wait = nullptr;
  ASSERT_CUDA(driver().cuGraphAddEventWaitNode(&wait, graph, nullptr, 0, event));
  add_set(graph, {wait}, word(0), 1);
  const GivenExec exec{graph};
  SlowWork work{kernels(), slow};
  ASSERT_CUDA(driver().cuEventRecord(event, slow));

  ASSERT_CUDA(exec.launch(stream));

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(stream));
  work.end();
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));
  EXPECT_EQ(read_word(word(0)), 1u);
}

TEST_F(GraphNodes, AChildGraphRunsInItsPlace) {
  GivenGraph child;
  const CUgraphNode first = add_increment(child, {}, word(0));
  add_increment(child, {first}, word(0));
  const GivenGraph graph;
  const CUgraphNode set = add_set(graph, {}, word(0), 10);
  CUgraphNode node = nullptr;
  ASSERT_CUDA(driver().cuGraphAddChildGraphNode(&node, graph, &set, 1, child));
  add_copy(graph, {node}, word(1), word(0));

  run(graph);

  EXPECT_EQ(type_of(node), CU_GRAPH_NODE_TYPE_GRAPH);
  EXPECT_EQ(read_word(word(1)), 12u);
}

TEST_F(GraphNodes, AllocationNodesGiveMemoryToTheNodesBetween) {
  const GivenGraph graph;
  CUDA_MEM_ALLOC_NODE_PARAMS allocation{};
  allocation.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  allocation.poolProps.location = device_location();
  allocation.bytesize = 1 * MiB;
  CUgraphNode allocate = nullptr;
  ASSERT_CUDA(driver().cuGraphAddMemAllocNode(&allocate, graph, nullptr, 0, &allocation));
  ASSERT_NE(allocation.dptr, 0u);
  const CUgraphNode set = add_set(graph, {allocate}, allocation.dptr, 44);
  const CUgraphNode copy = add_copy(graph, {set}, word(0), allocation.dptr);
  CUgraphNode free = nullptr;
  ASSERT_CUDA(driver().cuGraphAddMemFreeNode(&free, graph, &copy, 1, allocation.dptr));

  run(graph);

  EXPECT_EQ(type_of(allocate), CU_GRAPH_NODE_TYPE_MEM_ALLOC);
  EXPECT_EQ(type_of(free), CU_GRAPH_NODE_TYPE_MEM_FREE);
  EXPECT_EQ(read_word(word(0)), 44u);
  EXPECT_CUDA(driver().cuDeviceGraphMemTrim(device()));
}

TEST_F(GraphNodes, QueriesReportNodesAndEdges) {
  const GivenGraph graph;
  const CUgraphNode first = add_set(graph, {}, word(0), 1);
  const CUgraphNode second = add_set(graph, {first}, word(0), 2);
  CUgraphNode found = nullptr;
  size_t count = 1;

  EXPECT_CUDA(driver().cuGraphGetRootNodes(graph, &found, &count));
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(found, first);
  count = 1;
  EXPECT_CUDA(driver().cuGraphNodeGetDependencies_v10000(second, &found, &count));
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(found, first);
  count = 1;
  EXPECT_CUDA(driver().cuGraphNodeGetDependentNodes_v10000(first, &found, &count));
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(found, second);
  CUgraphNode from = nullptr;
  CUgraphNode to = nullptr;
  count = 1;
  EXPECT_CUDA(driver().cuGraphGetEdges_v10000(graph, &from, &to, &count));
  EXPECT_EQ(from, first);
  EXPECT_EQ(to, second);
}

TEST_F(GraphNodes, DependenciesMayBeAddedAndRemoved) {
  const GivenGraph graph;
  const CUgraphNode first = add_set(graph, {}, word(0), 1);
  const CUgraphNode second = add_set(graph, {}, word(1), 2);
  size_t edges = 0;

  ASSERT_CUDA(driver().cuGraphAddDependencies_v10000(graph, &first, &second, 1));
  EXPECT_CUDA(driver().cuGraphGetEdges_v10000(graph, nullptr, nullptr, &edges));
  EXPECT_EQ(edges, 1u);

  ASSERT_CUDA(driver().cuGraphRemoveDependencies_v10000(graph, &first, &second, 1));
  EXPECT_CUDA(driver().cuGraphGetEdges_v10000(graph, nullptr, nullptr, &edges));
  EXPECT_EQ(edges, 0u);
}

TEST_F(GraphNodes, ADestroyedNodeIsGone) {
  const GivenGraph graph;
  add_set(graph, {}, word(0), 1);
  const CUgraphNode unwanted = add_set(graph, {}, word(1), 1);

  ASSERT_CUDA(driver().cuGraphDestroyNode(unwanted));
  run(graph);

  EXPECT_EQ(graph.nodes().size(), 1u);
  EXPECT_EQ(read_word(word(0)), 1u);
  EXPECT_EQ(read_word(word(1)), 0u);
}

TEST_F(GraphNodes, ACloneIsIndependent) {
  CUgraph copied = nullptr;
  CUgraphNode node = nullptr;
  CUgraphNode node_in_clone = nullptr;
  GivenGraph original;
  node = add_set(original, {}, word(0), 1);

  ASSERT_CUDA(driver().cuGraphClone(&copied, original));
  const GivenGraph clone{copied};
  ASSERT_CUDA(driver().cuGraphNodeFindInClone(&node_in_clone, node, clone));
  const CUDA_MEMSET_NODE_PARAMS changed = set_of(word(1), 5);
  ASSERT_CUDA(driver().cuGraphMemsetNodeSetParams(node_in_clone, &changed));

  run(clone);
  EXPECT_EQ(read_word(word(0)), 0u);
  EXPECT_EQ(read_word(word(1)), 5u);
  run(original);
  EXPECT_EQ(read_word(word(0)), 1u);
}

}  // namespace
}  // namespace cuvmm::test
