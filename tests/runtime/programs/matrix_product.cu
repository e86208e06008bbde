// SPDX-License-Identifier: Apache-2.0
// A matrix product by tiles in shared memory, with sizes that are not multiples of a tile.
#include "must.cuh"

template <int tile>
__global__ void multiply(const float* a, const float* b, float* c, int rows, int columns,
                         int inner) {
  __shared__ float tile_a[tile][tile];
  __shared__ float tile_b[tile][tile + 1];
  const int row = blockIdx.y * tile + threadIdx.y;
  const int column = blockIdx.x * tile + threadIdx.x;
  float sum = 0;
  for (int begin = 0; begin < inner; begin += tile) {
    const int k_a = begin + threadIdx.x;
    const int k_b = begin + threadIdx.y;
    tile_a[threadIdx.y][threadIdx.x] = row < rows && k_a < inner ? a[row * inner + k_a] : 0;
    tile_b[threadIdx.y][threadIdx.x] =
        k_b < inner && column < columns ? b[k_b * columns + column] : 0;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < tile; ++k) sum += tile_a[threadIdx.y][k] * tile_b[k][threadIdx.x];
    __syncthreads();
  }
  if (row < rows && column < columns) c[row * columns + column] = sum;
}

int main() {
  constexpr int rows = 70;
  constexpr int columns = 50;
  constexpr int inner = 90;
  const auto matrix = [](int count, unsigned seed) {
    std::vector<float> values;
    for (const unsigned number : random_numbers(count, seed)) {
      values.push_back(float(number % 64) - 32);
    }
    return values;
  };
  const auto a = matrix(rows * inner, 1);
  const auto b = matrix(inner * columns, 2);
  float* device_a = on_device(a);
  float* device_b = on_device(b);
  float* device_c = nullptr;
  MUST(cudaMalloc(&device_c, rows * columns * sizeof(float)));
  constexpr int tile = 16;
  const dim3 blocks((columns + tile - 1) / tile, (rows + tile - 1) / tile);
  multiply<tile><<<blocks, dim3(tile, tile)>>>(device_a, device_b, device_c, rows, columns, inner);
  MUST(cudaGetLastError());
  const auto c = on_host(device_c, rows * columns);
  for (int row = 0; row < rows; ++row) {
    for (int column = 0; column < columns; ++column) {
      float sum = 0;
      for (int k = 0; k < inner; ++k) sum += a[row * inner + k] * b[k * columns + column];
      expect_near("product", row * columns + column, c[row * columns + column], sum);
    }
  }
  return 0;
}
