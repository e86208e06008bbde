// SPDX-License-Identifier: Apache-2.0
// The layout of a trace file, version 1, described in docs/internals/trace_format.md. All numbers
// are little-endian. The header, blocks and records begin at multiples of 64 bytes, so that a
// reader can resume after damage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>

#include "base/size.hpp"
#include "trace/record.hpp"

namespace cuvmm::trace_format {

inline constexpr char magic[8] = {'C', 'U', 'V', 'M', 'M', 'T', 'R', 'C'};
inline constexpr std::uint16_t major_version = 1;  // a reader refuses a newer one
inline constexpr std::uint16_t minor_version = 3;  // a reader takes any
inline constexpr std::uint32_t byte_order_mark = 0x01020304;
inline constexpr std::size_t unit = 64;

inline constexpr Size largest_header = 4 * MiB;
inline constexpr Size largest_payload = 4 * MiB;
inline constexpr std::size_t records_in_a_block = 1024;  // the most that we write

// The first bytes of a file. Sections follow, up to header_size.
struct FileHeader {
  char magic[8];
  std::uint32_t byte_order;
  std::uint16_t major;
  std::uint16_t minor;
  std::uint32_t header_size;  // of this and all sections; a multiple of 64
  std::uint16_t record_size;
  std::uint16_t block_header_size;
  std::uint32_t checksum;  // of all header_size bytes, with 0 here
  std::uint32_t reserved[9];
};
static_assert(sizeof(FileHeader) == unit && std::is_trivially_copyable_v<FileHeader>);

// A section's header; `size` bytes follow, then zeros up to a multiple of 8.
struct SectionHeader {
  std::uint32_t type;
  std::uint32_t size;
};
static_assert(sizeof(SectionHeader) == 8);

enum class SectionType : std::uint32_t {
  Nothing = 0,  // no more sections follow
  Start = 1,
  Library = 2,
  Mode = 3,
  Options = 4,
  Command = 5,
  Host = 6,
  Devices = 7,
  Calls = 8,
  Names = 9,
  Stacks = 10,
};

enum class BlockType : std::uint16_t { Records = 1, Sections = 2, End = 3 };

inline constexpr std::uint32_t block_magic = 0x4B4C4256;  // "VBLK"
inline constexpr std::uint32_t many_threads = 0xFFFFFFFF;

struct BlockHeader {
  std::uint32_t magic;
  BlockType type;
  std::uint16_t reserved;
  std::uint32_t payload_size;  // bytes that follow; a multiple of 64
  std::uint32_t records;
  std::uint32_t thread;  // that of all records, or many_threads
  std::uint32_t payload_checksum;
  std::uint64_t number;      // 0, 1, 2... in the order of the file
  std::uint64_t first_time;  // of the first record; records are in time order
  std::uint64_t last_time;
  std::uint64_t dropped;  // events lost since the start, in all threads
  std::uint32_t reserved_too;
  std::uint32_t header_checksum;  // of the 60 bytes before
};
static_assert(sizeof(BlockHeader) == unit && std::is_trivially_copyable_v<BlockHeader>);
static_assert(offsetof(BlockHeader, header_checksum) == 60);

// Why writing stopped.
enum class Stop : std::uint32_t { Finished = 0, SizeCap = 1, WriteFailed = 2 };

// The payload of an End block.
struct End {
  std::uint64_t records;
  std::uint64_t dropped;
  std::uint64_t time;  // ns since the start
  std::uint64_t blocks;
  std::uint32_t threads;
  Stop stop;
  std::uint64_t reserved[3];
};
static_assert(sizeof(End) == unit && std::is_trivially_copyable_v<End>);

constexpr std::size_t whole_units(std::size_t bytes) {
  return (bytes + unit - 1) / unit * unit;
}

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span{&value, 1});
}

// Fills in the checksums.
void seal(BlockHeader& header, std::span<const std::byte> payload);

// The block header in the first 64 of `bytes`, if it is valid.
std::optional<BlockHeader> block_at(std::span<const std::byte> bytes);
bool payload_is_whole(const BlockHeader& header, std::span<const std::byte> payload);

}  // namespace cuvmm::trace_format
