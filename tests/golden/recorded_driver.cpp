// SPDX-License-Identifier: Apache-2.0
#include "golden/recorded_driver.hpp"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <utility>

#include "base/size.hpp"
#include "support/driver_under_test.hpp"

namespace cuvmm::test {
namespace {

struct Recording {
  struct Addresses {
    int number;
    Size size;
  };
  Driver inner;
  std::map<CUdeviceptr, Addresses> reservations;
  std::map<CUmemGenericAllocationHandle, int> chunks;
  int reservations_so_far = 0;
  int chunks_so_far = 0;
  std::string lines;
};

// Driver functions carry no context that could lead to it.
std::unique_ptr<Recording> recording;

std::string bytes(Size size) {
  if (size % MiB == 0) return std::to_string(size / MiB) + "M";
  if (size % KiB == 0) return std::to_string(size / KiB) + "K";
  return std::to_string(size);
}

std::string where(CUdeviceptr address) {
  const auto above = recording->reservations.upper_bound(address);
  if (above == recording->reservations.begin()) return "elsewhere";
  const auto& [begin, found] = *std::prev(above);
  if (address - begin >= found.size) return "elsewhere";
  return "r" + std::to_string(found.number) + "+" + bytes(address - begin);
}

std::string chunk(CUmemGenericAllocationHandle handle) {
  const auto found = recording->chunks.find(handle);
  return found == recording->chunks.end() ? "unknown" : "c" + std::to_string(found->second);
}

std::string location(const CUmemLocation& where) {
  return (where.type == CU_MEM_LOCATION_TYPE_DEVICE ? "device" : "host") + std::to_string(where.id);
}

CUresult say(CUresult answer, std::string line) {
  if (answer != CUDA_SUCCESS) line += " -> " + name_of(answer);
  recording->lines += line + "\n";
  return answer;
}

CUresult reserve(CUdeviceptr* address, std::size_t size, std::size_t alignment, CUdeviceptr wanted,
                 unsigned long long flags) {
  const CUresult answer =
      recording->inner.cuMemAddressReserve(address, size, alignment, wanted, flags);
  if (answer == CUDA_SUCCESS) {
    recording->reservations[*address] = {++recording->reservations_so_far, size};
  }
  return say(answer, "reserve " + bytes(size) +
                         (answer == CUDA_SUCCESS ? " = " + where(*address) : std::string{}));
}

CUresult unreserve(CUdeviceptr address, std::size_t size) {
  const std::string line = "unreserve " + where(address) + " " + bytes(size);
  const CUresult answer = recording->inner.cuMemAddressFree(address, size);
  if (answer == CUDA_SUCCESS) recording->reservations.erase(address);
  return say(answer, line);
}

CUresult create(CUmemGenericAllocationHandle* handle, std::size_t size,
                const CUmemAllocationProp* properties, unsigned long long flags) {
  const CUresult answer = recording->inner.cuMemCreate(handle, size, properties, flags);
  if (answer == CUDA_SUCCESS) recording->chunks[*handle] = ++recording->chunks_so_far;
  return say(answer, "create " + bytes(size) + " on " + location(properties->location) +
                         (answer == CUDA_SUCCESS ? " = " + chunk(*handle) : std::string{}));
}

CUresult release(CUmemGenericAllocationHandle handle) {
  const std::string line = "release " + chunk(handle);
  const CUresult answer = recording->inner.cuMemRelease(handle);
  if (answer == CUDA_SUCCESS) recording->chunks.erase(handle);
  return say(answer, line);
}

CUresult map(CUdeviceptr address, std::size_t size, std::size_t offset,
             CUmemGenericAllocationHandle handle, unsigned long long flags) {
  const CUresult answer = recording->inner.cuMemMap(address, size, offset, handle, flags);
  return say(answer, "map " + where(address) + " " + bytes(size) + " " + chunk(handle));
}

CUresult unmap(CUdeviceptr address, std::size_t size) {
  return say(recording->inner.cuMemUnmap(address, size),
             "unmap " + where(address) + " " + bytes(size));
}

CUresult set_access(CUdeviceptr address, std::size_t size, const CUmemAccessDesc* wanted,
                    std::size_t count) {
  std::string line = "access " + where(address) + " " + bytes(size);
  for (std::size_t i = 0; i < count; ++i) {
    line += " " + location(wanted[i].location) + ":" +
            (wanted[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? "rw"
             : wanted[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ    ? "r"
                                                                   : "none");
  }
  return say(recording->inner.cuMemSetAccess(address, size, wanted, count), line);
}

CUresult copy(CUdeviceptr to, CUdeviceptr from, std::size_t size, CUstream stream) {
  return say(recording->inner.cuMemcpyDtoDAsync(to, from, size, stream),
             "copy " + where(to) + " from " + where(from) + " " + bytes(size));
}

CUresult copy_in(CUdeviceptr to, const void* from, std::size_t size, CUstream stream) {
  return say(recording->inner.cuMemcpyHtoDAsync(to, from, size, stream),
             "copy " + where(to) + " from the host " + bytes(size));
}

CUresult copy_out(void* to, CUdeviceptr from, std::size_t size, CUstream stream) {
  return say(recording->inner.cuMemcpyDtoHAsync(to, from, size, stream),
             "copy the host from " + where(from) + " " + bytes(size));
}

}  // namespace

RecordedDriver::RecordedDriver(const Driver& inner) : table_(inner) {
  if (recording != nullptr) {
    std::fputs("two RecordedDrivers at a time\n", stderr);
    std::abort();
  }
  recording = std::make_unique<Recording>();
  recording->inner = inner;
  table_.cuMemAddressReserve = &reserve;
  table_.cuMemAddressFree = &unreserve;
  table_.cuMemCreate = &create;
  table_.cuMemRelease = &release;
  table_.cuMemMap = &map;
  table_.cuMemUnmap = &unmap;
  table_.cuMemSetAccess = &set_access;
  table_.cuMemcpyDtoDAsync = &copy;
  table_.cuMemcpyHtoDAsync = &copy_in;
  table_.cuMemcpyDtoHAsync = &copy_out;
}

RecordedDriver::~RecordedDriver() {
  recording.reset();
}

std::string RecordedDriver::take_lines() {
  return std::exchange(recording->lines, {});
}

}  // namespace cuvmm::test
