// SPDX-License-Identifier: Apache-2.0
// Matrix instructions are not interpreted: the launch is refused and the log names the instruction.
// Ends with status 0 if the error is cudaErrorNotSupported.
#include <mma.h>

#include "must.cuh"

__global__ void multiply(const __half* a, const __half* b, float* c) {
  nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, __half, nvcuda::wmma::row_major> left;
  nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, __half, nvcuda::wmma::col_major> right;
  nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> sum;
  nvcuda::wmma::fill_fragment(sum, 0.0F);
  nvcuda::wmma::load_matrix_sync(left, a, 16);
  nvcuda::wmma::load_matrix_sync(right, b, 16);
  nvcuda::wmma::mma_sync(sum, left, right, sum);
  nvcuda::wmma::store_matrix_sync(c, sum, 16, nvcuda::wmma::mem_row_major);
}

int main() {
  void* memory = nullptr;
  MUST(cudaMalloc(&memory, 4096));
  auto* halves = static_cast<__half*>(memory);
  multiply<<<1, 32>>>(halves, halves, static_cast<float*>(memory));
  const cudaError_t answer = cudaGetLastError();
  if (answer == cudaErrorNotSupported) return 0;
  std::fprintf(stderr, "the launch: %s\n", cudaGetErrorString(answer));
  return 1;
}
