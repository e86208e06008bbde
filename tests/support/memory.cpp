// SPDX-License-Identifier: Apache-2.0
#include "support/memory.hpp"

#include <algorithm>
#include <cstring>

namespace cuvmm::test {
namespace {

// Contents are transferred in pieces, through a buffer that each thread keeps: the pages of a new
// one would have to be mapped for every pattern.
constexpr Size piece_size = 1 * MiB;
std::vector<std::byte>& kept_piece() {
  thread_local std::vector<std::byte> piece(piece_size);
  return piece;
}

// Consecutive words differ by an odd number, so that no two within 16 GiB are equal and a compiler
// can handle many at once.
constexpr std::uint32_t pattern_step = 0x9E3779B1;
constexpr Size words_at_once = 1024;

std::uint32_t pattern_word(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t mixed = seed * 0xBF58476D1CE4E5B9u;
  mixed ^= mixed >> 31;
  return static_cast<std::uint32_t>(mixed * 0x94D049BB133111EBu >> 32) +
         static_cast<std::uint32_t>(index) * pattern_step;
}

// The bytes are private to the thread: checking them would take most of the time under
// ThreadSanitizer.
[[gnu::no_sanitize("thread")]] void fill_words(void* to, Size size, std::uint64_t seed,
                                               std::uint64_t first) {
  auto* bytes = static_cast<std::byte*>(to);
  const Size count = size / sizeof(std::uint32_t);
  Size i = 0;
  for (; count - i >= words_at_once; i += words_at_once) {
    std::uint32_t word = pattern_word(seed, first + i);
    for (Size k = i; k < i + words_at_once; ++k, word += pattern_step) {
      std::memcpy(bytes + k * sizeof word, &word, sizeof word);
    }
  }
  for (; i < count; ++i) {
    const std::uint32_t word = pattern_word(seed, first + i);
    std::memcpy(bytes + i * sizeof word, &word, sizeof word);
  }
}

[[gnu::no_sanitize("thread")]] bool has_many_words(const std::byte* bytes, std::uint32_t word) {
  std::uint32_t different = 0;
  for (Size i = 0; i < words_at_once; ++i, word += pattern_step) {
    std::uint32_t seen = 0;
    std::memcpy(&seen, bytes + i * sizeof seen, sizeof seen);
    different |= seen ^ word;
  }
  return different == 0;
}

[[gnu::no_sanitize("thread")]] ::testing::AssertionResult has_words(const void* from, Size size,
                                                                    std::uint64_t seed,
                                                                    std::uint64_t first) {
  const auto* bytes = static_cast<const std::byte*>(from);
  const Size count = size / sizeof(std::uint32_t);
  Size i = 0;
  while (count - i >= words_at_once &&
         has_many_words(bytes + i * sizeof(std::uint32_t), pattern_word(seed, first + i))) {
    i += words_at_once;
  }
  for (; i < count; ++i) {
    std::uint32_t word = 0;
    std::memcpy(&word, bytes + i * sizeof word, sizeof word);
    if (word == pattern_word(seed, first + i)) continue;
    return ::testing::AssertionFailure()
           << "the word at byte " << (first + i) * sizeof word << " is " << word << ", expected "
           << pattern_word(seed, first + i) << " (pattern of seed " << seed << ")";
  }
  return ::testing::AssertionSuccess();
}

}  // namespace

CUmemLocation device_location(int ordinal) {
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = ordinal;
  return location;
}

CUmemLocation host_node_location(int node) {
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
  location.id = node;
  return location;
}

CUmemAllocationProp chunk_properties(CUmemLocation location, Exportable exportable) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = location;
  properties.requestedHandleTypes = exportable == Exportable::Fd
                                        ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                                        : CU_MEM_HANDLE_TYPE_NONE;
  return properties;
}

Size granularity() {
  const CUmemAllocationProp properties = chunk_properties();
  size_t found = 0;
  GIVEN(driver().cuMemGetAllocationGranularity(&found, &properties,
                                               CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  return found;
}

CUmemAccessDesc access(CUmemAccess_flags flags, int ordinal) {
  CUmemAccessDesc description{};
  description.location = device_location(ordinal);
  description.flags = flags;
  return description;
}

CUresult set_access(CUdeviceptr address, Size size, CUmemAccess_flags flags, int ordinal) {
  const CUmemAccessDesc description = access(flags, ordinal);
  return driver().cuMemSetAccess(address, size, &description, 1);
}

unsigned long long rights(CUdeviceptr address, int ordinal) {
  const CUmemLocation location = device_location(ordinal);
  unsigned long long flags = 0;
  GIVEN(driver().cuMemGetAccess(&flags, &location, address));
  return flags;
}

MemoryInfo memory_info() {
  size_t free = 0;
  size_t total = 0;
  GIVEN(driver().cuMemGetInfo(&free, &total));
  return {.free = free, .total = total};
}

GivenBlocking::GivenBlocking(Size size) : size_(size) {
  GIVEN(driver().cuMemAlloc(&address_, size));
}
GivenBlocking::~GivenBlocking() {
  if (address_ != 0) {
    EXPECT_CUDA(free());
  }
}

GivenReservation::GivenReservation(Size size, Size alignment) : size_(size) {
  GIVEN(driver().cuMemAddressReserve(&address_, size, alignment, 0, 0));
}
GivenReservation::~GivenReservation() {
  if (address_ != 0) {
    EXPECT_CUDA(driver().cuMemAddressFree(address_, size_));
  }
}

GivenChunk::GivenChunk(Size size, const CUmemAllocationProp& properties) : size_(size) {
  GIVEN(driver().cuMemCreate(&handle_, size, &properties, 0));
}
GivenChunk::~GivenChunk() {
  if (handle_ != 0) {
    EXPECT_CUDA(release());
  }
}

GivenMapping::GivenMapping(CUdeviceptr address, const GivenChunk& chunk) : size_(chunk.size()) {
  GIVEN(driver().cuMemMap(address, chunk.size(), 0, chunk.handle(), 0));
  address_ = address;
}
GivenMapping::~GivenMapping() {
  if (address_ != 0) {
    EXPECT_CUDA(unmap());
  }
}

GivenMapped::GivenMapped(int chunk_count, Size chunk_size, const CUmemAllocationProp& properties)
    : chunk_size_(chunk_size), reservation_(chunk_size * static_cast<Size>(chunk_count)) {
  chunks_.reserve(static_cast<std::size_t>(chunk_count));
  mappings_.reserve(static_cast<std::size_t>(chunk_count));
  for (CUdeviceptr at = address(); at < address() + size(); at += chunk_size) {
    chunks_.emplace_back(chunk_size, properties);
    mappings_.emplace_back(at, chunks_.back());
  }
  GIVEN(set_access(address(), size()));
}

// Takes ever smaller blocks, since a card does not return the last of its free memory as one block.
GivenBallast::GivenBallast(Size left) {
  const Size free = memory_info().free;
  Size missing = free > left ? round_down(free - left, granularity()) : 0;
  for (Size block = missing; block >= granularity(); block = round_down(block, granularity())) {
    CUdeviceptr address = 0;
    if (driver().cuMemAlloc(&address, block) == CUDA_SUCCESS) {
      blocks_.push_back(GivenBlocking::adopt(address, block));
      missing -= block;
      block = missing;
    } else {
      block /= 2;
    }
  }
}

std::vector<std::byte> read(CUdeviceptr address, Size size) {
  std::vector<std::byte> bytes(size);
  EXPECT_CUDA(driver().cuMemcpyDtoH(bytes.data(), address, size));
  return bytes;
}

std::uint32_t read_word(CUdeviceptr address) {
  std::uint32_t word = 0;
  EXPECT_CUDA(driver().cuMemcpyDtoH(&word, address, sizeof word));
  return word;
}

void write(CUdeviceptr address, const void* bytes, Size size) {
  EXPECT_CUDA(driver().cuMemcpyHtoD(address, bytes, size));
  EXPECT_CUDA(driver().cuStreamSynchronize(CU_STREAM_LEGACY));
}

void write_word(CUdeviceptr address, std::uint32_t word) {
  write(address, &word, sizeof word);
}

void fill_host_pattern(void* to, Size size, std::uint64_t seed) {
  fill_words(to, size, seed, 0);
}

::testing::AssertionResult has_pattern(const void* bytes, Size size, std::uint64_t seed,
                                       Size from) {
  return has_words(static_cast<const std::byte*>(bytes) + from, size - from, seed,
                   from / sizeof(std::uint32_t));
}

void fill_pattern(CUdeviceptr address, Size size, std::uint64_t seed) {
  std::vector<std::byte>& piece = kept_piece();
  for (Size done = 0; done < size; done += piece.size()) {
    const Size length = std::min<Size>(piece.size(), size - done);
    fill_words(piece.data(), length, seed, done / sizeof(std::uint32_t));
    write(address + done, piece.data(), length);
  }
}

void expect_pattern(CUdeviceptr address, Size size, std::uint64_t seed) {
  std::vector<std::byte>& piece = kept_piece();
  for (Size done = 0; done < size; done += piece.size()) {
    const Size length = std::min<Size>(piece.size(), size - done);
    ASSERT_CUDA(driver().cuMemcpyDtoH(piece.data(), address + done, length));
    ASSERT_TRUE(has_words(piece.data(), length, seed, done / sizeof(std::uint32_t)));
  }
}

}  // namespace cuvmm::test
