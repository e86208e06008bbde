// SPDX-License-Identifier: Apache-2.0
// Allocates memory in the ways that the driver always serves itself, and checks the reported free
// memory after each: never more than the total less what it holds, and at the end as much as at
// first.
#include <cuda.h>

#include <cstdio>
#include <cstdlib>

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;
std::size_t held = 0;
std::size_t free_before = 0;

void check(CUresult answer, const char* step) {
  if (answer == CUDA_SUCCESS) return;
  std::printf("%s answered %d\n", step, static_cast<int>(answer));
  std::exit(1);
}

std::size_t free_now(const char* step) {
  std::size_t free = 0;
  std::size_t total = 0;
  check(cuMemGetInfo(&free, &total), "cuMemGetInfo");
  std::printf("%s: %zu of %zu MiB free\n", step, free / mib, total / mib);
  if (free + held > total) {
    std::printf("but %zu MiB are held\n", held / mib);
    std::exit(1);
  }
  return free;
}

void took(std::size_t size, const char* step) {
  held += size;
  const std::size_t now = free_now(step);
  if (now + size > free_before) {
    std::printf("and it was not counted\n");
    std::exit(1);
  }
  free_before = now;
}

}  // namespace

int main() {
  CUcontext context = nullptr;
  check(cuInit(0), "cuInit");
  check(cuDevicePrimaryCtxRetain(&context, 0), "retain");
  check(cuCtxSetCurrent(context), "set current");
  const std::size_t at_first = free_before = free_now("at first");

  CUdeviceptr blocking = 0;
  check(cuMemAlloc(&blocking, 64 * mib), "cuMemAlloc");
  took(64 * mib, "a blocking block");

  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemGenericAllocationHandle chunk = 0;
  check(cuMemCreate(&chunk, 64 * mib, &properties, 0), "cuMemCreate");
  took(64 * mib, "a chunk");

  const CUDA_ARRAY_DESCRIPTOR shape{4096, 2048, CU_AD_FORMAT_FLOAT, 1};
  CUarray array = nullptr;
  check(cuArrayCreate(&array, &shape), "cuArrayCreate");
  took(32 * mib, "an array");

  CUdeviceptr managed = 0;
  check(cuMemAllocManaged(&managed, 16 * mib, CU_MEM_ATTACH_GLOBAL), "cuMemAllocManaged");
  took(16 * mib, "managed memory");

  CUmemPoolProps shared{};
  shared.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  shared.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  shared.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemoryPool pool = nullptr;
  CUdeviceptr pooled = 0;
  check(cuMemPoolCreate(&pool, &shared), "cuMemPoolCreate");
  check(cuMemAllocFromPoolAsync(&pooled, 32 * mib, pool, nullptr), "cuMemAllocFromPoolAsync");
  took(32 * mib, "memory of a pool that is shared");

  check(cuMemFreeAsync(pooled, nullptr), "cuMemFreeAsync");
  check(cuStreamSynchronize(nullptr), "wait");
  check(cuMemPoolDestroy(pool), "cuMemPoolDestroy");
  check(cuMemFree(managed), "cuMemFree");
  check(cuArrayDestroy(array), "cuArrayDestroy");
  check(cuMemRelease(chunk), "cuMemRelease");
  check(cuMemFree(blocking), "cuMemFree");
  held = 0;
  if (free_now("in the end") != at_first) {
    std::printf("not what it was at first\n");
    return 1;
  }
  check(cuDevicePrimaryCtxRelease(0), "release");
  return 0;
}
