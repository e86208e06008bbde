// SPDX-License-Identifier: Apache-2.0
// Memory that a test depends on, freed at the end of the scope.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/size.hpp"
#include "support/driver_under_test.hpp"

namespace cuvmm::test {

enum class Exportable : std::uint8_t { No, Fd };

CUmemLocation device_location(int ordinal = 0);
CUmemLocation host_node_location(int node = 0);
CUmemAllocationProp chunk_properties(CUmemLocation location = device_location(),
                                     Exportable exportable = Exportable::No);

// The driver's granularity on device 0.
Size granularity();

// Rights of one device over a range.
CUmemAccessDesc access(CUmemAccess_flags flags, int ordinal = 0);
CUresult set_access(CUdeviceptr address, Size size,
                    CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE, int ordinal = 0);
unsigned long long rights(CUdeviceptr address, int ordinal = 0);

struct MemoryInfo {
  Size free;
  Size total;
};
MemoryInfo memory_info();

// cuMemAlloc.
class GivenBlocking {
 public:
  explicit GivenBlocking(Size size);
  ~GivenBlocking();
  GivenBlocking(GivenBlocking&& other) noexcept
      : address_(std::exchange(other.address_, 0)), size_(other.size_) {}
  GivenBlocking& operator=(GivenBlocking&&) = delete;
  CUdeviceptr address() const { return address_; }
  Size size() const { return size_; }
  CUresult free() { return driver().cuMemFree(forget()); }
  CUdeviceptr forget() { return std::exchange(address_, 0); }
  static GivenBlocking adopt(CUdeviceptr address, Size size) { return {address, size}; }

 private:
  GivenBlocking(CUdeviceptr address, Size size) : address_(address), size_(size) {}
  CUdeviceptr address_ = 0;
  Size size_ = 0;
};

// cuMemAddressReserve.
class GivenReservation {
 public:
  explicit GivenReservation(Size size, Size alignment = 0);
  ~GivenReservation();
  GivenReservation(GivenReservation&& other) noexcept
      : address_(std::exchange(other.address_, 0)), size_(other.size_) {}
  GivenReservation& operator=(GivenReservation&&) = delete;
  CUdeviceptr address() const { return address_; }
  Size size() const { return size_; }
  CUdeviceptr forget() { return std::exchange(address_, 0); }

 private:
  CUdeviceptr address_ = 0;
  Size size_ = 0;
};

// cuMemCreate.
class GivenChunk {
 public:
  GivenChunk(Size size, const CUmemAllocationProp& properties);
  // Takes ownership of a handle from elsewhere: imported or retained.
  GivenChunk(CUmemGenericAllocationHandle handle, Size size) : handle_(handle), size_(size) {}
  ~GivenChunk();
  GivenChunk(GivenChunk&& other) noexcept
      : handle_(std::exchange(other.handle_, 0)), size_(other.size_) {}
  GivenChunk& operator=(GivenChunk&&) = delete;
  CUmemGenericAllocationHandle handle() const { return handle_; }
  Size size() const { return size_; }
  CUresult release() { return driver().cuMemRelease(std::exchange(handle_, 0)); }

 private:
  CUmemGenericAllocationHandle handle_ = 0;
  Size size_ = 0;
};

// Maps one chunk at an address: cuMemMap and, at the end, cuMemUnmap. Grants no access yet.
// Unmapping does not wait: a caller that starts work on the range must wait for it.
class GivenMapping {
 public:
  GivenMapping(CUdeviceptr address, const GivenChunk& chunk);
  ~GivenMapping();
  GivenMapping(GivenMapping&& other) noexcept
      : address_(std::exchange(other.address_, 0)), size_(other.size_) {}
  GivenMapping& operator=(GivenMapping&&) = delete;
  CUdeviceptr address() const { return address_; }
  Size size() const { return size_; }
  CUresult unmap() { return driver().cuMemUnmap(std::exchange(address_, 0), size_); }

 private:
  CUdeviceptr address_ = 0;
  Size size_ = 0;
};

// Chunks side by side in one reservation, readable and writable by device 0.
class GivenMapped {
 public:
  GivenMapped(int chunk_count, Size chunk_size, const CUmemAllocationProp& properties);
  CUdeviceptr address() const { return reservation_.address(); }
  CUdeviceptr address_of(std::size_t chunk) const { return mappings_[chunk].address(); }
  Size size() const { return reservation_.size(); }
  Size chunk_size() const { return chunk_size_; }
  GivenChunk& chunk(std::size_t index) { return chunks_[index]; }
  GivenMapping& mapping(std::size_t index) { return mappings_[index]; }

 private:
  Size chunk_size_;
  GivenReservation reservation_;
  std::vector<GivenChunk> chunks_;
  std::vector<GivenMapping> mappings_;
};

// From one range of device memory to another, in the form that graphs take.
inline CUDA_MEMCPY3D linear_copy(CUdeviceptr from, CUdeviceptr to, Size size) {
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = from;
  copy.dstDevice = to;
  copy.WidthInBytes = size;
  copy.Height = copy.Depth = 1;
  return copy;
}

inline GivenBlocking given_blocking(Size size) {
  return GivenBlocking{size};
}
inline GivenReservation given_reservation(Size size, Size alignment = 0) {
  return GivenReservation{size, alignment};
}
inline GivenChunk given_chunk(Size size,
                              const CUmemAllocationProp& properties = chunk_properties()) {
  return GivenChunk{size, properties};
}
inline GivenMapping given_mapping(CUdeviceptr address, const GivenChunk& chunk) {
  return GivenMapping{address, chunk};
}
inline GivenMapped given_mapped(int chunk_count, Size chunk_size,
                                const CUmemAllocationProp& properties = chunk_properties()) {
  return GivenMapped{chunk_count, chunk_size, properties};
}

// One plain allocation of all of device 0's memory but about `left`, so that tests of a full card
// are fast on a large one.
class GivenBallast {
 public:
  explicit GivenBallast(Size left);

 private:
  std::vector<GivenBlocking> blocks_;
};

// Contents, by blocking copies to and from the host. A driver's copy to the device returns once its
// source is staged; write() returns only once the bytes have arrived, so that unmapping may follow.
std::vector<std::byte> read(CUdeviceptr address, Size size);
std::uint32_t read_word(CUdeviceptr address);
void write(CUdeviceptr address, const void* bytes, Size size);
void write_word(CUdeviceptr address, std::uint32_t word);

// Words that depend on their position and on the seed, so that moved, stale and torn contents all
// show. `size` is a multiple of 4.
void fill_pattern(CUdeviceptr address, Size size, std::uint64_t seed);
void expect_pattern(CUdeviceptr address, Size size, std::uint64_t seed);

// The same for host memory; has_pattern() skips the bytes before `from`.
void fill_host_pattern(void* to, Size size, std::uint64_t seed);
::testing::AssertionResult has_pattern(const void* bytes, Size size, std::uint64_t seed,
                                       Size from = 0);

}  // namespace cuvmm::test
