// SPDX-License-Identifier: Apache-2.0
// Capturing a stream's calls into a graph: begin, end, fork, join, and queries in between.
#include "streams_support.hpp"

namespace cuvmm::test {
namespace {

class Capture : public DriverContract {};

void begin(CUstream stream, CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) {
  begin_capture(stream, mode);
}
GivenGraph end(CUstream stream) {
  return end_capture(stream);
}

TEST_F(Capture, AnEmptyCaptureIsAnEmptyGraph) {
  const GivenStream stream;
  begin(stream);
  EXPECT_EQ(capture_status(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);

  const GivenGraph graph = end(stream);

  EXPECT_EQ(capture_status(stream), CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_TRUE(graph.nodes().empty());
}

TEST_F(Capture, AskingForTheFlagsOfItsStreamBreaksIt) {
  const GivenStream stream;
  const GivenStream other;
  unsigned flags = 0;
  CUcontext context = nullptr;
  begin(stream);
  EXPECT_CUDA(driver().cuStreamGetCtx_v9020(stream, &context));
  EXPECT_CUDA(driver().cuStreamGetCtx_v9020(other, &context));
  EXPECT_CUDA(driver().cuStreamGetFlags(other, &flags));
  EXPECT_EQ(capture_status(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, driver().cuStreamGetFlags(stream, &flags));
  EXPECT_EQ(capture_status(stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  CUgraph graph = nullptr;
  EXPECT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, driver().cuStreamEndCapture(stream, &graph));
}

TEST_F(Capture, CapturedWorkDoesNotRunUntilTheGraphIsLaunched) {
  const GivenStream stream;
  const GivenBlocking memory{4 * KiB};
  ASSERT_CUDA(driver().cuMemsetD32(memory.address(), 0, 16));
  ASSERT_CUDA(synchronize());
  const Kernels& all = kernels();
  begin(stream);
  ASSERT_CUDA(driver().cuMemsetD32Async(memory.address(), 3, 16, stream));
  ASSERT_CUDA(launch(all.add_one, stream, memory.address(), std::uint32_t{16}));
  const GivenGraph graph = end(stream);
  ASSERT_CUDA(synchronize());
  EXPECT_TRUE(all_words_are(memory.address(), 16, 0));

  const GivenExec exec{graph};
  ASSERT_CUDA(exec.launch(stream));
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  EXPECT_TRUE(all_words_are(memory.address(), 16, 4));
}

TEST_F(Capture, EachCapturedCallBecomesANodeBehindTheOneBefore) {
  const GivenStream stream;
  const GivenBlocking memory{4 * KiB};
  const Kernels& all = kernels();
  begin(stream);
  ASSERT_CUDA(driver().cuMemsetD32Async(memory.address(), 3, 16, stream));
  ASSERT_CUDA(launch(all.add_one, stream, memory.address(), std::uint32_t{16}));
  ASSERT_CUDA(driver().cuMemcpyDtoDAsync(memory.address() + 64, memory.address(), 64, stream));
  ASSERT_CUDA(driver().cuLaunchHostFunc(
      stream, [](void*) {}, nullptr));
  const GivenGraph graph = end(stream);

  size_t edges = 0;
  EXPECT_CUDA(driver().cuGraphGetEdges_v10000(graph, nullptr, nullptr, &edges));
  size_t roots = 0;
  EXPECT_CUDA(driver().cuGraphGetRootNodes(graph, nullptr, &roots));

  EXPECT_EQ(graph.nodes().size(), 4u);
  EXPECT_EQ(edges, 3u);
  EXPECT_EQ(roots, 1u);
}

TEST_F(Capture, AStreamJoinsThroughAnEventAndBack) {
  const GivenStream origin;
  const GivenStream forked;
  const GivenEvent fork;
  const GivenEvent join;
  const GivenBlocking memory{4 * KiB};
  const CUdeviceptr word = memory.address();
  begin(origin);
  ASSERT_CUDA(driver().cuMemsetD32Async(word, 1, 1, origin));
  ASSERT_CUDA(driver().cuEventRecord(fork, origin));
  ASSERT_CUDA(driver().cuStreamWaitEvent(forked, fork, 0));
  EXPECT_EQ(capture_status(forked), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  ASSERT_CUDA(driver().cuMemcpyDtoDAsync(word + 64, word, 4, forked));
  ASSERT_CUDA(driver().cuEventRecord(join, forked));
  ASSERT_CUDA(driver().cuStreamWaitEvent(origin, join, 0));
  ASSERT_CUDA(driver().cuMemsetD32Async(word, 2, 1, origin));
  const GivenGraph graph = end(origin);
  EXPECT_EQ(capture_status(forked), CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(graph.nodes().size(), 3u);

  const GivenExec exec{graph};
  ASSERT_CUDA(exec.launch(origin));
  ASSERT_CUDA(driver().cuStreamSynchronize(origin));

  EXPECT_EQ(read_word(word + 64), 1u);
  EXPECT_EQ(read_word(word), 2u);
}

TEST_F(Capture, AForkThatIsDestroyedCannotBeJoined) {
  const GivenStream origin;
  GivenStream forked;
  const GivenEvent fork;
  const GivenBlocking memory{4 * KiB};
  begin(origin);
  ASSERT_CUDA(driver().cuEventRecord(fork, origin));
  ASSERT_CUDA(driver().cuStreamWaitEvent(forked, fork, 0));
  ASSERT_CUDA(driver().cuMemsetD32Async(memory.address(), 1, 1, forked));
  CUgraph graph = nullptr;

  EXPECT_CUDA(forked.destroy());
  EXPECT_EQ(capture_status(origin), CU_STREAM_CAPTURE_STATUS_ACTIVE);

  EXPECT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, driver().cuStreamEndCapture(origin, &graph));
  EXPECT_EQ(graph, nullptr);
}

TEST_F(Capture, AForkThatIsNotJoinedFailsTheCapture) {
  const GivenStream origin;
  const GivenStream forked;
  const GivenEvent fork;
  const GivenBlocking memory{4 * KiB};
  begin(origin);
  ASSERT_CUDA(driver().cuEventRecord(fork, origin));
  ASSERT_CUDA(driver().cuStreamWaitEvent(forked, fork, 0));
  ASSERT_CUDA(driver().cuMemsetD32Async(memory.address(), 1, 1, forked));
  CUgraph graph = nullptr;

  EXPECT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, driver().cuStreamEndCapture(origin, &graph));

  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(capture_status(origin), CU_STREAM_CAPTURE_STATUS_NONE);
}

TEST_F(Capture, AForkedStreamCannotEndTheCapture) {
  const GivenStream origin;
  const GivenStream forked;
  const GivenEvent fork;
  const GivenEvent join;
  begin(origin);
  ASSERT_CUDA(driver().cuEventRecord(fork, origin));
  ASSERT_CUDA(driver().cuStreamWaitEvent(forked, fork, 0));
  CUgraph graph = nullptr;

  EXPECT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, driver().cuStreamEndCapture(forked, &graph));

  expect_invalidated(origin);
}

TEST_F(Capture, AnotherThreadCannotEndAThreadLocalCapture) {
  const GivenStream stream;
  begin(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  CUgraph graph = nullptr;

  CallElsewhere end_there{[&] { return driver().cuStreamEndCapture(stream, &graph); }};

  EXPECT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, end_there.answer());
  EXPECT_EQ(capture_status(stream), CU_STREAM_CAPTURE_STATUS_NONE) << "the capture is over anyway";
}

TEST_F(Capture, AnotherThreadMayEndARelaxedCapture) {
  const GivenStream stream;
  begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  CUgraph graph = nullptr;

  CallElsewhere end_there{[&] { return driver().cuStreamEndCapture(stream, &graph); }};

  EXPECT_CUDA(end_there.answer());
  const GivenGraph captured{graph};
  EXPECT_NE(graph, nullptr);
}

TEST_F(Capture, ACapturingStreamCannotBeginAgain) {
  const GivenStream stream;
  begin(stream);

  // Measured: the documentation forbids the call but does not say what it returns.
  EXPECT_ANSWER(CUDA_ERROR_ILLEGAL_STATE,
                driver().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));

  const GivenGraph graph = end(stream);
}

TEST_F(Capture, AStreamThatHasJoinedOneCannotBeginAnother) {
  NEEDS_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
  const GivenStream stream;
  const GivenStream joining;
  const GivenStream other;
  const GivenEvent forks;
  const GivenEvent joins;
  ASSERT_CUDA(driver().cuMemFreeAsync(given_async(2 * MiB, joining), joining));
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  ASSERT_CUDA(driver().cuEventRecord(forks, stream));
  ASSERT_CUDA(driver().cuStreamWaitEvent(joining, forks, 0));

  EXPECT_ANSWER(CUDA_ERROR_ILLEGAL_STATE,
                driver().cuStreamBeginCapture(joining, CU_STREAM_CAPTURE_MODE_RELAXED));

  EXPECT_CUDA(driver().cuMemFreeAsync(given_async(4 * MiB, other), other));
  ASSERT_CUDA(driver().cuEventRecord(joins, joining));
  ASSERT_CUDA(driver().cuStreamWaitEvent(stream, joins, 0));
  expect_well(stream);
}

TEST_F(Capture, AStreamThatDoesNotCaptureCannotEnd) {
  const GivenStream stream;
  CUgraph graph = nullptr;
  // Measured: the documentation forbids the call but does not say what it returns.
  EXPECT_ANSWER(CUDA_ERROR_ILLEGAL_STATE, driver().cuStreamEndCapture(stream, &graph));
}

TEST_F(Capture, TheLegacyStreamCannotCapture) {
  EXPECT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                driver().cuStreamBeginCapture(default_stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  EXPECT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                driver().cuStreamBeginCapture(legacy_stream, CU_STREAM_CAPTURE_MODE_RELAXED));
}

TEST_F(Capture, ThePerThreadStreamMayCapture) {
  begin(per_thread_stream);
  EXPECT_EQ(capture_status(per_thread_stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  const GivenGraph graph = end(per_thread_stream);
}

TEST_F(Capture, OtherStreamsTakeWorkMeanwhile) {
  const GivenStream capturing;
  const GivenStream other;
  const GivenBlocking memory{4 * KiB};
  PinnedWords seen{1};
  begin(capturing);

  ASSERT_CUDA(driver().cuMemsetD32Async(memory.address(), 7, 1, other));
  ASSERT_CUDA(driver().cuMemcpyDtoHAsync(seen.data(), memory.address(), 4, other));
  EXPECT_EQ(capture_status(other), CU_STREAM_CAPTURE_STATUS_NONE);

  const GivenGraph graph = end(capturing);
  EXPECT_TRUE(graph.nodes().empty());
  EXPECT_CUDA(driver().cuStreamSynchronize(other));
  EXPECT_EQ(seen[0], 7u);
}

TEST_F(Capture, TwoCapturesGoOnSideBySide) {
  const GivenStream first;
  const GivenStream second;
  const GivenBlocking memory{4 * KiB};
  begin(first);
  begin(second);
  ASSERT_CUDA(driver().cuMemsetD32Async(memory.address(), 1, 1, first));
  ASSERT_CUDA(driver().cuMemsetD32Async(memory.address() + 64, 2, 1, second));

  const GivenGraph graph_of_first = end(first);
  const GivenGraph graph_of_second = end(second);

  EXPECT_EQ(graph_of_first.nodes().size(), 1u);
  EXPECT_EQ(graph_of_second.nodes().size(), 1u);
}

TEST_F(Capture, TheThreeSignaturesOfCaptureInfoAgree) {
  NEEDS_CALL(cuStreamGetCaptureInfo_v3);
  const GivenStream stream;
  const GivenBlocking memory{4 * KiB};
  begin(stream);
  ASSERT_CUDA(driver().cuMemsetD32Async(memory.address(), 1, 1, stream));
  struct Info {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t id = 0;
    CUgraph graph = nullptr;
    const CUgraphNode* dependencies = nullptr;
    size_t count = 99;
  } first, second, third;

  EXPECT_CUDA(driver().cuStreamGetCaptureInfo_v10010(stream, &first.status, &first.id));
  EXPECT_CUDA(driver().cuStreamGetCaptureInfo_v11030(
      stream, &second.status, &second.id, &second.graph, &second.dependencies, &second.count));
  EXPECT_CUDA(driver().cuStreamGetCaptureInfo(stream, &third.status, &third.id, &third.graph,
                                              &third.dependencies, nullptr, &third.count));

  EXPECT_EQ(first.status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_EQ(second.status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_EQ(third.status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_EQ(first.id, second.id);
  EXPECT_EQ(first.id, third.id);
  EXPECT_NE(second.graph, nullptr);
  EXPECT_EQ(second.graph, third.graph);
  EXPECT_EQ(second.count, 1u);
  ASSERT_EQ(third.count, 1u);
  EXPECT_EQ(type_of(third.dependencies[0]), CU_GRAPH_NODE_TYPE_MEMSET);
  const GivenGraph graph = end(stream);
  EXPECT_EQ(static_cast<CUgraph>(graph), third.graph);
}

TEST_F(Capture, EveryCaptureHasAUniqueId) {
  const GivenStream stream;
  CUstreamCaptureStatus status{};
  cuuint64_t first = 0;
  cuuint64_t second = 0;
  begin(stream);
  EXPECT_CUDA(driver().cuStreamGetCaptureInfo_v10010(stream, &status, &first));
  { const GivenGraph graph = end(stream); }
  begin(stream);
  EXPECT_CUDA(driver().cuStreamGetCaptureInfo_v10010(stream, &status, &second));
  { const GivenGraph graph = end(stream); }

  EXPECT_NE(first, second);
}

TEST_F(Capture, AStreamThatDoesNotCaptureHasNoCaptureInfo) {
  const GivenStream stream;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  cuuint64_t id = 0;

  EXPECT_CUDA(driver().cuStreamGetCaptureInfo_v10010(stream, &status, &id));

  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
}

TEST_F(Capture, StreamOrderedMemoryBecomesNodes) {
  const GivenStream stream;
  begin(stream);
  CUdeviceptr memory = 0;
  ASSERT_CUDA(driver().cuMemAllocAsync(&memory, 1 * MiB, stream));
  ASSERT_CUDA(driver().cuMemsetD32Async(memory, 5, 16, stream));
  ASSERT_CUDA(driver().cuMemFreeAsync(memory, stream));
  const GivenGraph graph = end(stream);

  size_t allocations = 0;
  size_t frees = 0;
  for (const CUgraphNode node : graph.nodes()) {
    if (type_of(node) == CU_GRAPH_NODE_TYPE_MEM_ALLOC) ++allocations;
    if (type_of(node) == CU_GRAPH_NODE_TYPE_MEM_FREE) ++frees;
  }
  EXPECT_NE(memory, 0u);
  EXPECT_EQ(allocations, 1u);
  EXPECT_EQ(frees, 1u);
  const GivenExec exec{graph};
  EXPECT_CUDA(exec.launch(stream));
  EXPECT_CUDA(driver().cuStreamSynchronize(stream));
}

TEST_F(Capture, CaptureIntoAGraphAddsToIt) {
  NEEDS_CALL(cuStreamBeginCaptureToGraph);
  const GivenStream stream;
  const GivenGraph graph;
  const GivenBlocking memory{4 * KiB};
  CUgraphNode first = nullptr;
  ASSERT_CUDA(driver().cuGraphAddEmptyNode(&first, graph, nullptr, 0));

  ASSERT_CUDA(driver().cuStreamBeginCaptureToGraph(stream, graph, &first, nullptr, 1,
                                                   CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  ASSERT_CUDA(driver().cuMemsetD32Async(memory.address(), 1, 1, stream));
  CUgraph ended = nullptr;
  ASSERT_CUDA(driver().cuStreamEndCapture(stream, &ended));

  EXPECT_EQ(ended, static_cast<CUgraph>(graph));
  EXPECT_EQ(graph.nodes().size(), 2u);
  size_t edges = 0;
  EXPECT_CUDA(driver().cuGraphGetEdges_v10000(graph, nullptr, nullptr, &edges));
  EXPECT_EQ(edges, 1u);
}

}  // namespace
}  // namespace cuvmm::test
