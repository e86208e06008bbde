// SPDX-License-Identifier: Apache-2.0
// Streams, events and graphs, through the CUDA runtime.
#include <atomic>

#include "runtime/runtime_checks.hpp"

namespace cuvmm::test {
namespace {

class RuntimeStreams : public RuntimeTest {};

constexpr std::size_t size = 1 << 20;

TEST_F(RuntimeStreams, AnEventOrdersTwoStreams) {
  cudaStream_t first = nullptr;
  cudaStream_t second = nullptr;
  cudaEvent_t event = nullptr;
  ASSERT_RUNTIME(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
  ASSERT_RUNTIME(cudaStreamCreateWithPriority(&second, cudaStreamNonBlocking, -1));
  ASSERT_RUNTIME(cudaEventCreate(&event));
  void* memory = nullptr;
  ASSERT_RUNTIME(cudaMalloc(&memory, size));
  std::atomic<bool> released{false};
  const auto wait = [](void* flag) {
    while (!static_cast<std::atomic<bool>*>(flag)->load()) {
    }
  };
  EXPECT_RUNTIME(cudaLaunchHostFunc(first, wait, &released));
  EXPECT_RUNTIME(cudaMemsetAsync(memory, 1, size, first));
  EXPECT_RUNTIME(cudaEventRecord(event, first));
  EXPECT_RUNTIME(cudaStreamWaitEvent(second, event, 0));
  EXPECT_RUNTIME(cudaMemsetAsync(memory, 2, size, second));
  EXPECT_EQ(cudaStreamQuery(second), cudaErrorNotReady);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  released = true;
  EXPECT_RUNTIME(cudaStreamSynchronize(second));
  EXPECT_RUNTIME(cudaEventQuery(event));
  EXPECT_EQ(read_back(memory, size / 4), std::vector<std::uint32_t>(size / 4, 0x02020202));
  EXPECT_RUNTIME(cudaFree(memory));
  EXPECT_RUNTIME(cudaEventDestroy(event));
  EXPECT_RUNTIME(cudaStreamDestroy(first));
  EXPECT_RUNTIME(cudaStreamDestroy(second));
}

TEST_F(RuntimeStreams, TimeBetweenEventsIsMeasured) {
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  ASSERT_RUNTIME(cudaEventCreate(&begin));
  ASSERT_RUNTIME(cudaEventCreate(&end));
  EXPECT_RUNTIME(cudaEventRecord(begin, nullptr));
  EXPECT_RUNTIME(cudaEventRecord(end, nullptr));
  EXPECT_RUNTIME(cudaEventSynchronize(end));
  float milliseconds = -1;
  EXPECT_RUNTIME(cudaEventElapsedTime(&milliseconds, begin, end));
  EXPECT_GE(milliseconds, 0);
  EXPECT_RUNTIME(cudaEventDestroy(begin));
  EXPECT_RUNTIME(cudaEventDestroy(end));
}

TEST_F(RuntimeStreams, ACaptureBecomesAGraphThatRunsAgain) {
  cudaStream_t stream = nullptr;
  ASSERT_RUNTIME(cudaStreamCreate(&stream));
  void* memory = nullptr;
  ASSERT_RUNTIME(cudaMalloc(&memory, size));
  ASSERT_RUNTIME(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  EXPECT_RUNTIME(cudaMemsetAsync(memory, 5, size, stream));
  cudaGraph_t graph = nullptr;
  ASSERT_RUNTIME(cudaStreamEndCapture(stream, &graph));
  std::size_t nodes = 0;
  EXPECT_RUNTIME(cudaGraphGetNodes(graph, nullptr, &nodes));
  EXPECT_EQ(nodes, 1u);
  cudaGraphExec_t runnable = nullptr;
  ASSERT_RUNTIME(cudaGraphInstantiateWithFlags(&runnable, graph, 0));
  for (int i = 0; i < 2; ++i) {
    EXPECT_RUNTIME(cudaMemset(memory, 0, size));
    EXPECT_RUNTIME(cudaGraphLaunch(runnable, stream));
    EXPECT_RUNTIME(cudaStreamSynchronize(stream));
    EXPECT_EQ(read_back(memory, size / 4), std::vector<std::uint32_t>(size / 4, 0x05050505));
  }
  EXPECT_RUNTIME(cudaGraphExecDestroy(runnable));
  EXPECT_RUNTIME(cudaGraphDestroy(graph));
  EXPECT_RUNTIME(cudaFree(memory));
  EXPECT_RUNTIME(cudaStreamDestroy(stream));
}

TEST_F(RuntimeStreams, AnUnsafeCallBreaksACaptureAndIsNamed) {
  cudaStream_t stream = nullptr;
  ASSERT_RUNTIME(cudaStreamCreate(&stream));
  ASSERT_RUNTIME(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, size), cudaErrorStreamCaptureUnsupported);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
  cudaGetLastError();
  EXPECT_RUNTIME(cudaStreamDestroy(stream));
}

}  // namespace
}  // namespace cuvmm::test
