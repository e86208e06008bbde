// SPDX-License-Identifier: Apache-2.0
// Memory of every kind, through the CUDA runtime.
#include <cstring>

#include "runtime/runtime_checks.hpp"

namespace cuvmm::test {
namespace {

class RuntimeMemory : public RuntimeTest {};

constexpr std::size_t words = 1 << 18;

TEST_F(RuntimeMemory, BlockingMemoryKeepsCopiedContents) {
  const auto values = numbers(words, 2);
  void* memory = nullptr;
  ASSERT_RUNTIME(cudaMalloc(&memory, bytes_of(values)));
  EXPECT_RUNTIME(cudaMemcpy(memory, values.data(), bytes_of(values), cudaMemcpyHostToDevice));
  EXPECT_EQ(read_back(memory, words), values);
  EXPECT_RUNTIME(cudaMemset(memory, 0x11, bytes_of(values)));
  EXPECT_EQ(read_back(memory, words), std::vector<std::uint32_t>(words, 0x11111111));
  EXPECT_RUNTIME(cudaFree(memory));
}

TEST_F(RuntimeMemory, RowsAreCopiedByTheirPitch) {
  constexpr std::size_t width = 1000;
  constexpr std::size_t height = 33;
  void* pitched = nullptr;
  std::size_t pitch = 0;
  ASSERT_RUNTIME(cudaMallocPitch(&pitched, &pitch, width, height));
  EXPECT_GE(pitch, width);
  const auto values = numbers(width * height / 4, 3);
  EXPECT_RUNTIME(
      cudaMemcpy2D(pitched, pitch, values.data(), width, width, height, cudaMemcpyHostToDevice));
  std::vector<std::uint32_t> found(values.size());
  EXPECT_RUNTIME(
      cudaMemcpy2D(found.data(), width, pitched, pitch, width, height, cudaMemcpyDeviceToHost));
  EXPECT_EQ(found, values);
  EXPECT_RUNTIME(cudaFree(pitched));
}

TEST_F(RuntimeMemory, HostAndDeviceSharePinnedManagedAndRegisteredMemory) {
  const auto values = numbers(1024, 4);
  void* device = nullptr;
  ASSERT_RUNTIME(cudaMalloc(&device, bytes_of(values)));
  EXPECT_RUNTIME(cudaMemcpy(device, values.data(), bytes_of(values), cudaMemcpyDefault));
  void* pinned = nullptr;
  ASSERT_RUNTIME(cudaHostAlloc(&pinned, bytes_of(values), cudaHostAllocMapped));
  void* seen_by_device = nullptr;
  EXPECT_RUNTIME(cudaHostGetDevicePointer(&seen_by_device, pinned, 0));
  EXPECT_EQ(seen_by_device, pinned);
  void* managed = nullptr;
  ASSERT_RUNTIME(cudaMallocManaged(&managed, bytes_of(values)));
  std::vector<std::uint32_t> registered(values.size());
  EXPECT_RUNTIME(cudaHostRegister(registered.data(), bytes_of(values), cudaHostRegisterDefault));
  for (void* host : {pinned, managed, static_cast<void*>(registered.data())}) {
    EXPECT_RUNTIME(cudaMemcpy(host, device, bytes_of(values), cudaMemcpyDefault));
    EXPECT_EQ(std::memcmp(host, values.data(), bytes_of(values)), 0);
  }
  EXPECT_RUNTIME(cudaHostUnregister(registered.data()));
  EXPECT_RUNTIME(cudaFreeHost(pinned));
  EXPECT_RUNTIME(cudaFree(managed));
  EXPECT_RUNTIME(cudaFree(device));
}

TEST_F(RuntimeMemory, AnOversizedAllocationFailsAndTheErrorIsCleared) {
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, std::size_t{1} << 50), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaFree(&memory), cudaErrorInvalidValue);
  cudaGetLastError();
}

TEST_F(RuntimeMemory, StreamOrderedMemoryComesFromTheDevicesPool) {
  cudaStream_t stream = nullptr;
  ASSERT_RUNTIME(cudaStreamCreate(&stream));
  cudaMemPool_t pool = nullptr;
  ASSERT_RUNTIME(cudaDeviceGetDefaultMemPool(&pool, 0));
  std::uint64_t kept = UINT64_MAX;
  EXPECT_RUNTIME(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept));
  const auto values = numbers(words, 5);
  void* first = nullptr;
  void* second = nullptr;
  ASSERT_RUNTIME(cudaMallocAsync(&first, bytes_of(values), stream));
  ASSERT_RUNTIME(cudaMallocAsync(&second, bytes_of(values), stream));
  EXPECT_RUNTIME(
      cudaMemcpyAsync(first, values.data(), bytes_of(values), cudaMemcpyHostToDevice, stream));
  EXPECT_RUNTIME(
      cudaMemcpyAsync(second, first, bytes_of(values), cudaMemcpyDeviceToDevice, stream));
  EXPECT_RUNTIME(cudaFreeAsync(first, stream));
  EXPECT_RUNTIME(cudaStreamSynchronize(stream));
  EXPECT_EQ(read_back(second, words), values);
  std::uint64_t used = 0;
  EXPECT_RUNTIME(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
  EXPECT_EQ(used, bytes_of(values));
  EXPECT_RUNTIME(cudaFreeAsync(second, stream));
  EXPECT_RUNTIME(cudaStreamSynchronize(stream));
  EXPECT_RUNTIME(cudaMemPoolTrimTo(pool, 0));
  EXPECT_RUNTIME(cudaStreamDestroy(stream));
}

TEST_F(RuntimeMemory, TheProgramsOwnPoolServesToo) {
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {cudaMemLocationTypeDevice, 0};
  cudaMemPool_t pool = nullptr;
  ASSERT_RUNTIME(cudaMemPoolCreate(&pool, &properties));
  void* memory = nullptr;
  ASSERT_RUNTIME(cudaMallocFromPoolAsync(&memory, 1 << 20, pool, nullptr));
  EXPECT_RUNTIME(cudaMemsetAsync(memory, 7, 1 << 20, nullptr));
  EXPECT_RUNTIME(cudaFreeAsync(memory, nullptr));
  EXPECT_RUNTIME(cudaDeviceSynchronize());
  EXPECT_RUNTIME(cudaMemPoolDestroy(pool));
}

}  // namespace
}  // namespace cuvmm::test
