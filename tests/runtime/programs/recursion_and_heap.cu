// SPDX-License-Identifier: Apache-2.0
// Directly and mutually recursive functions, and memory that kernels allocate.
#include "must.cuh"

__device__ __noinline__ int fibonacci(int n) {
  return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

__device__ __noinline__ int count_odd(int n);
__device__ __noinline__ int count_even(int n) {
  return n == 0 ? 0 : 1 + 10 * count_odd(n - 1);
}
__device__ __noinline__ int count_odd(int n) {
  return n == 0 ? 0 : 2 + 10 * count_even(n - 1);
}

__device__ __noinline__ void sort(int* values, int begin, int end) {
  if (end - begin < 2) return;
  const int pivot = values[(begin + end) / 2];
  int low = begin;
  int high = end - 1;
  while (low <= high) {
    while (values[low] < pivot) ++low;
    while (values[high] > pivot) --high;
    if (low > high) break;
    const int held = values[low];
    values[low++] = values[high];
    values[high--] = held;
  }
  sort(values, begin, high + 1);
  sort(values, low, end);
}

__global__ void recurse(int* results, int* turns, int* values, int each) {
  const int i = threadIdx.x;
  results[i] = fibonacci(i % 12);
  turns[i] = count_even(i % 6);
  sort(values + i * each, 0, each);
}

struct Node {
  int value;
  Node* next;
};

__global__ void build_lists(int* sums) {
  Node* first = nullptr;
  for (int i = 0; i <= static_cast<int>(threadIdx.x); ++i) first = new Node{i, first};
  int sum = 0;
  while (first != nullptr) {
    sum += first->value;
    Node* const next = first->next;
    delete first;
    first = next;
  }
  sums[threadIdx.x] = sum;
}

int main() {
  constexpr int threads = 40;
  constexpr int each = 30;
  std::vector<int> values;
  for (const unsigned number : random_numbers(threads * each, 6)) values.push_back(number % 1000);
  int* memory = on_device(values);
  int* results = on_device(std::vector<int>(threads));
  int* turns = on_device(std::vector<int>(threads));
  recurse<<<1, threads>>>(results, turns, memory, each);
  MUST(cudaGetLastError());
  const auto numbers = on_host(results, threads);
  const auto found_turns = on_host(turns, threads);
  const auto sorted = on_host(memory, threads * each);
  const int expected[] = {0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89};
  const int expected_turns[] = {0, 1, 21, 121, 2121, 12121};
  for (int i = 0; i < threads; ++i) {
    expect_near("fibonacci", i, numbers[i], expected[i % 12]);
    expect_near("turns", i, found_turns[i], expected_turns[i % 6]);
    for (int k = 1; k < each; ++k) {
      if (sorted[i * each + k - 1] > sorted[i * each + k]) expect_near("sorted", i * each + k, 0, 1);
    }
  }

  build_lists<<<1, threads>>>(results);
  MUST(cudaGetLastError());
  const auto sums = on_host(results, threads);
  for (int i = 0; i < threads; ++i) expect_near("sum", i, sums[i], i * (i + 1) / 2);
  return 0;
}
