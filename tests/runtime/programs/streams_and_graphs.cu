// SPDX-License-Identifier: Apache-2.0
// Streams, events, stream-ordered memory, host functions, and a captured graph that is launched
// repeatedly.
#include "must.cuh"

__global__ void fill(int* values, int count, int value) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] = value + i;
}

__global__ void add(const int* a, const int* b, int* sums, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) sums[i] += a[i] + b[i];
}

void CUDART_CB note(void* times) {
  ++*static_cast<int*>(times);
}

int main() {
  constexpr int count = 10'000;
  constexpr int threads = 256;
  constexpr int blocks = (count + threads - 1) / threads;
  cudaStream_t first{};
  cudaStream_t second{};
  MUST(cudaStreamCreate(&first));
  MUST(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
  cudaEvent_t ready{};
  cudaEvent_t begin{};
  cudaEvent_t end{};
  MUST(cudaEventCreateWithFlags(&ready, cudaEventDisableTiming));
  MUST(cudaEventCreate(&begin));
  MUST(cudaEventCreate(&end));
  int* a = nullptr;
  int* b = nullptr;
  int* sums = nullptr;
  MUST(cudaEventRecord(begin, first));
  MUST(cudaMallocAsync(&a, count * sizeof(int), first));
  MUST(cudaMallocAsync(&sums, count * sizeof(int), first));
  MUST(cudaMallocAsync(&b, count * sizeof(int), second));
  MUST(cudaMemsetAsync(sums, 0, count * sizeof(int), first));
  fill<<<blocks, threads, 0, first>>>(a, count, 10);
  fill<<<blocks, threads, 0, second>>>(b, count, 20);
  MUST(cudaEventRecord(ready, second));
  MUST(cudaStreamWaitEvent(first, ready, 0));

  int times = 0;
  cudaGraph_t graph{};
  cudaGraphExec_t runnable{};
  MUST(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal));
  add<<<blocks, threads, 0, first>>>(a, b, sums, count);
  MUST(cudaLaunchHostFunc(first, note, &times));
  MUST(cudaStreamEndCapture(first, &graph));
  MUST(cudaGraphInstantiate(&runnable, graph, 0));
  for (int i = 0; i < 5; ++i) MUST(cudaGraphLaunch(runnable, first));
  MUST(cudaEventRecord(end, first));

  int* pinned = nullptr;
  MUST(cudaMallocHost(&pinned, count * sizeof(int)));
  MUST(cudaMemcpyAsync(pinned, sums, count * sizeof(int), cudaMemcpyDeviceToHost, first));
  MUST(cudaStreamSynchronize(first));
  for (int i = 0; i < count; ++i) expect_near("sum", i, pinned[i], 5 * (30 + 2 * i));
  expect_near("host function", 0, times, 5);
  float elapsed = -1;
  MUST(cudaEventElapsedTime(&elapsed, begin, end));
  if (elapsed < 0) expect_near("elapsed", 0, elapsed, 0);
  MUST(cudaFreeAsync(a, first));
  MUST(cudaFreeAsync(sums, first));
  MUST(cudaFreeAsync(b, first));
  MUST(cudaGraphExecDestroy(runnable));
  MUST(cudaGraphDestroy(graph));
  MUST(cudaFreeHost(pinned));
  MUST(cudaStreamDestroy(first));
  MUST(cudaStreamDestroy(second));
  MUST(cudaDeviceSynchronize());
  return 0;
}
