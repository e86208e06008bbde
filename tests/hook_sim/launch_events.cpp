// SPDX-License-Identifier: Apache-2.0
// Events that a launch records through its attributes, or a graph's node, prove nothing about
// earlier work.
#include <gtest/gtest.h>

#include "hook_sim/on_primary_context.hpp"

namespace cuvmm::test {
namespace {

class EventOfALaunch : public OnPrimaryContext {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(OnPrimaryContext::SetUp());
    if (Engine::get()->serving() == nullptr) GTEST_SKIP() << "nothing is served";
    ASSERT_DONE(through_door<Call::cuStreamCreate>(&stream_, unsigned{CU_STREAM_NON_BLOCKING}));
    ASSERT_DONE(through_door<Call::cuEventCreate>(&event_, unsigned{CU_EVENT_DISABLE_TIMING}));
    free_and_record(event_);
    ASSERT_TRUE(is_proof());
  }
  void TearDown() override {
    if (event_ != nullptr) {
      EXPECT_DONE(through_door<Call::cuEventDestroy_v2>(event_));
    }
    OnPrimaryContext::TearDown();
  }

  static StreamClock& clock() { return Engine::get()->serving()->clock; }
  static bool is_proof(CUevent event) { return !clock().events().last_record(event).place.empty(); }
  bool is_proof() const { return is_proof(event_); }
  // Recording the event behind a free makes it proof that the free comes before it.
  void free_and_record(CUevent event) {
    CUdeviceptr freed = 0;
    EXPECT_DONE(through_door<Call::cuMemAllocAsync>(&freed, std::size_t{4096}, stream_));
    EXPECT_DONE(through_door<Call::cuMemFreeAsync>(freed, stream_));
    EXPECT_DONE(through_door<Call::cuEventRecord>(event, stream_));
  }

  // A stand-in accepts every launch.
  CUresult launch(CUlaunchAttribute* attributes, unsigned count) {
    CUlaunchConfig config{};
    config.gridDimX = config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = config.blockDimY = config.blockDimZ = 1;
    config.hStream = stream_;
    config.attrs = attributes;
    config.numAttrs = count;
    const CUlaunchConfig* const asked = &config;
    return through_door<Call::cuLaunchKernelEx>(
        asked, CUfunction{nullptr}, static_cast<void**>(nullptr), static_cast<void**>(nullptr));
  }

  CUstream stream_ = nullptr;
  CUevent event_ = nullptr;
};

TEST_F(EventOfALaunch, ThatTheKernelTriggersIsNoProof) {
  CUlaunchAttribute attributes[2]{};
  attributes[0].id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
  attributes[1].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT;
  attributes[1].value.programmaticEvent.event = event_;
  EXPECT_DONE(launch(&attributes[0], 2));
  EXPECT_FALSE(is_proof());
}

TEST_F(EventOfALaunch, ThatTheLaunchCompletesIsNoProof) {
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
  attribute.value.launchCompletionEvent.event = event_;
  EXPECT_DONE(launch(&attribute, 1));
  EXPECT_FALSE(is_proof());
}

TEST_F(EventOfALaunch, IsProofAgainOnceItIsRecordedAsUsual) {
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
  attribute.value.launchCompletionEvent.event = event_;
  EXPECT_DONE(launch(&attribute, 1));
  EXPECT_DONE(through_door<Call::cuEventRecord>(event_, stream_));
  EXPECT_TRUE(is_proof());
}

// The graph records the event whenever it runs.
TEST_F(EventOfALaunch, IsNoProofAgainOnceTheLaunchIsCaptured) {
  CUgraph graph = nullptr;
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
  attribute.value.launchCompletionEvent.event = event_;
  ASSERT_DONE(
      through_door<Call::cuStreamBeginCapture_v2>(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  EXPECT_DONE(launch(&attribute, 1));
  ASSERT_DONE(through_door<Call::cuStreamEndCapture>(stream_, &graph));
  EXPECT_DONE(through_door<Call::cuEventRecord>(event_, stream_));
  EXPECT_FALSE(is_proof());
  EXPECT_DONE(through_door<Call::cuGraphDestroy>(graph));
}

TEST_F(EventOfALaunch, IsNoProofAgainOnceAGraphsKernelNodeNamesIt) {
  CUkernelNodeAttrValue value{};
  value.programmaticEvent.event = event_;
  const CUkernelNodeAttrValue* const asked = &value;
  static_cast<void>(through_door<Call::cuGraphKernelNodeSetAttribute>(
      CUgraphNode{nullptr}, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT, asked));
  EXPECT_DONE(through_door<Call::cuEventRecord>(event_, stream_));
  EXPECT_FALSE(is_proof());
}

// A node may come to record another event than the one that it was added with.
TEST_F(EventOfALaunch, IsNoProofAgainOnceAGraphsNodeIsMadeToRecordIt) {
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  CUgraphExec exec = nullptr;
  CUevent first = nullptr;
  ASSERT_DONE(through_door<Call::cuEventCreate>(&first, unsigned{CU_EVENT_DISABLE_TIMING}));
  ASSERT_DONE(through_door<Call::cuGraphCreate>(&graph, 0u));
  ASSERT_DONE(
      through_door<Call::cuGraphAddEventRecordNode>(&node, graph, nullptr, std::size_t{0}, first));
  ASSERT_DONE(through_door<Call::cuGraphInstantiateWithFlags>(&exec, graph, 0ull));
  CUgraphNodeParams parameters{};
  parameters.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD;
  for (const bool is_instantiated : {false, true}) {
    CUevent event = nullptr;
    ASSERT_DONE(through_door<Call::cuEventCreate>(&event, unsigned{CU_EVENT_DISABLE_TIMING}));
    free_and_record(event);
    ASSERT_TRUE(is_proof(event));
    parameters.eventRecord.event = event;
    if (is_instantiated) {
      EXPECT_DONE(through_door<Call::cuGraphExecNodeSetParams>(exec, node, &parameters));
    } else {
      EXPECT_DONE(through_door<Call::cuGraphNodeSetParams>(node, &parameters));
    }
    EXPECT_FALSE(is_proof(event)) << is_instantiated;
    free_and_record(event);
    EXPECT_FALSE(is_proof(event)) << is_instantiated;
    EXPECT_DONE(through_door<Call::cuEventDestroy_v2>(event));
  }
  EXPECT_DONE(through_door<Call::cuGraphExecDestroy>(exec));
  EXPECT_DONE(through_door<Call::cuGraphDestroy>(graph));
  EXPECT_DONE(through_door<Call::cuEventDestroy_v2>(first));
}

TEST_F(EventOfALaunch, IsProofBesideLaunchesThatDoNotNameIt) {
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attribute.value.programmaticStreamSerializationAllowed = 1;
  EXPECT_DONE(launch(&attribute, 1));
  EXPECT_DONE(launch(nullptr, 0));
  EXPECT_DONE(launch(nullptr, 1));
  EXPECT_TRUE(is_proof());
}

}  // namespace
}  // namespace cuvmm::test
