// SPDX-License-Identifier: Apache-2.0
// Allocates memory in every way, uses it, checks it, frees it. Prints one line per step, without
// addresses, so that two runs can be compared letter by letter.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "routes.hpp"

namespace {

Calls calls;

void check(CUresult answer, const char* step) {
  if (answer == CUDA_SUCCESS) return;
  std::printf("%s answered %d\n", step, static_cast<int>(answer));
  std::exit(1);
}

std::uint64_t sum_of(CUdeviceptr address, std::size_t words) {
  std::vector<std::uint32_t> host(words);
  check(calls.cuMemcpyDtoH_(host.data(), address, words * 4), "copy to the host");
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < words; ++i) sum = sum * 31 + host[i];
  return sum;
}

void fill(CUdeviceptr address, std::size_t words, std::uint32_t seed) {
  std::vector<std::uint32_t> host(words);
  for (std::size_t i = 0; i < words; ++i)
    host[i] = seed + static_cast<std::uint32_t>(i) * 2654435761U;
  check(calls.cuMemcpyHtoD_(address, host.data(), words * 4), "copy to the device");
}

void report(const char* step, std::uint64_t value) {
  std::printf("%-24s %016llx\n", step, static_cast<unsigned long long>(value));
}

void use_blocking_memory() {
  for (const std::size_t size :
       {std::size_t{1000}, std::size_t{1} << 20, std::size_t{3} << 20, std::size_t{40} << 20}) {
    const std::size_t at_each_end = std::min(size, std::size_t{3} << 20);
    CUdeviceptr address = 0;
    check(calls.cuMemAlloc_(&address, size), "cuMemAlloc");
    const CUdeviceptr last = address + size - at_each_end;
    fill(address, at_each_end / 4, static_cast<std::uint32_t>(size));
    if (last != address) fill(last, at_each_end / 4, static_cast<std::uint32_t>(size) + 1);
    report("blocking", sum_of(address, at_each_end / 4));
    report("blocking, its end", sum_of(last, at_each_end / 4));
    check(calls.cuMemFree_(address), "cuMemFree");
  }
}

void use_ordered_memory() {
  CUdeviceptr first = 0;
  CUdeviceptr second = 0;
  const std::size_t size = 5 << 20;
  check(calls.cuMemAllocAsync_(&first, size, nullptr), "cuMemAllocAsync");
  check(calls.cuMemAllocAsync_(&second, size, nullptr), "cuMemAllocAsync");
  fill(first, size / 4, 7);
  check(calls.cuMemcpyDtoDAsync_(second, first, size, nullptr), "copy on the device");
  check(calls.cuMemFreeAsync_(first, nullptr), "cuMemFreeAsync");
  check(calls.cuStreamSynchronize_(nullptr), "wait");
  report("stream-ordered", sum_of(second, size / 4));
  check(calls.cuMemFreeAsync_(second, nullptr), "cuMemFreeAsync");
  check(calls.cuStreamSynchronize_(nullptr), "wait");
}

void use_other_memory() {
  CUdeviceptr pitched = 0;
  std::size_t pitch = 0;
  check(calls.cuMemAllocPitch_(&pitched, &pitch, 1000, 33, 4), "cuMemAllocPitch");
  check(calls.cuMemsetD32_(pitched, 0xABCD, pitch * 33 / 4), "set");
  report("pitched", sum_of(pitched, pitch * 33 / 4));
  check(calls.cuMemFree_(pitched), "cuMemFree");

  CUdeviceptr managed = 0;
  check(calls.cuMemAllocManaged_(&managed, 4096, CU_MEM_ATTACH_GLOBAL), "cuMemAllocManaged");
  check(calls.cuMemsetD32_(managed, 3, 1024), "set");
  check(calls.cuStreamSynchronize_(nullptr), "wait");
  report("managed", *reinterpret_cast<std::uint32_t*>(managed));
  check(calls.cuMemFree_(managed), "cuMemFree");

  void* host = nullptr;
  check(calls.cuMemAllocHost_(&host, 4096), "cuMemAllocHost");
  std::memset(host, 1, 4096);
  check(calls.cuMemFreeHost_(host), "cuMemFreeHost");
}

void be_refused() {
  CUdeviceptr address = 0;
  std::printf("nothing                  %d\n", static_cast<int>(calls.cuMemAlloc_(&address, 0)));
  std::printf("beyond the card          %d\n",
              static_cast<int>(calls.cuMemAlloc_(&address, std::size_t{1} << 50)));
  std::printf("free of nothing          %d\n", static_cast<int>(calls.cuMemFree_(0)));
  std::printf("free of what never was   %d\n", static_cast<int>(calls.cuMemFree_(0x123456)));
}

// The program may not change the granules behind its memory.
void change_what_lies_behind(CUdeviceptr address, const char* what) {
  constexpr std::size_t granule = 2 << 20;
  const CUdeviceptr begin = address / granule * granule;
  const CUmemLocation here{CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  const CUmemAccessDesc access{here, CU_MEM_ACCESS_FLAGS_PROT_READ};
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = here;
  CUmemGenericAllocationHandle chunk = 0;
  check(calls.cuMemCreate_(&chunk, granule, &properties, 0), "cuMemCreate");
  std::printf("%-24s unmap %d, map %d, access %d, free %d\n", what,
              static_cast<int>(calls.cuMemUnmap_(begin, granule)),
              static_cast<int>(calls.cuMemMap_(begin, granule, 0, chunk, 0)),
              static_cast<int>(calls.cuMemSetAccess_(begin, granule, &access, 1)),
              static_cast<int>(calls.cuMemAddressFree_(begin, granule)));
  check(calls.cuMemRelease_(chunk), "cuMemRelease");
}

void keep_memory_together() {
  constexpr std::size_t size = 5 << 20;
  CUdeviceptr small = 0;
  CUdeviceptr blocking = 0;
  CUdeviceptr ordered = 0;
  check(calls.cuMemAlloc_(&small, 1000), "cuMemAlloc");
  check(calls.cuMemAlloc_(&blocking, size), "cuMemAlloc");
  check(calls.cuMemAllocAsync_(&ordered, size, nullptr), "cuMemAllocAsync");
  check(calls.cuStreamSynchronize_(nullptr), "wait");
  change_what_lies_behind(small, "small");
  change_what_lies_behind(blocking, "blocking");
  change_what_lies_behind(blocking + size - 1, "its end");
  change_what_lies_behind(ordered, "stream-ordered");
  fill(blocking, size / 4, 5);
  fill(ordered, size / 4, 6);
  report("blocking still", sum_of(blocking, size / 4));
  report("stream-ordered still", sum_of(ordered, size / 4));
  check(calls.cuMemFreeAsync_(ordered, nullptr), "cuMemFreeAsync");
  check(calls.cuMemFree_(blocking), "cuMemFree");
  check(calls.cuMemFree_(small), "cuMemFree");
}

Calls chosen_route(int count, char** words) {
  const std::string route = count > 1 ? words[1] : "dlsym";
#ifdef PROGRAM_IS_LINKED
  if (route == "linked") return calls_by_link();
#endif
  if (route == "dlsym") return calls_by_dlsym();
  if (route == "proc" && count > 3) {
    return calls_by_proc_address(std::atoi(words[2]), static_cast<cuuint64_t>(std::atoi(words[3])));
  }
  std::fprintf(stderr, "no such route: %s\n", route.c_str());
  std::exit(2);
}

}  // namespace

int main(int count, char** words) {
  calls = chosen_route(count, words);
  CUdevice device = 0;
  CUcontext context = nullptr;
  check(calls.cuInit_(0), "cuInit");
  check(calls.cuDeviceGet_(&device, 0), "cuDeviceGet");
  check(calls.cuDevicePrimaryCtxRetain_(&context, device), "retain");
  check(calls.cuCtxSetCurrent_(context), "make current");
  use_blocking_memory();
  use_ordered_memory();
  use_other_memory();
  keep_memory_together();
  be_refused();
  check(calls.cuDevicePrimaryCtxRelease_(device), "release");
  return 0;
}
