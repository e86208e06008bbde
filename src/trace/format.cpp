// SPDX-License-Identifier: Apache-2.0
#include "trace/format.hpp"

#include <cstring>

#include "trace/checksum.hpp"

namespace cuvmm::trace_format {
namespace {

std::uint32_t header_checksum(const BlockHeader& header) {
  return crc32c(bytes_of(header).first(offsetof(BlockHeader, header_checksum)));
}

bool makes_sense(const BlockHeader& header) {
  if (header.payload_size % unit != 0 || header.payload_size > largest_payload) return false;
  switch (header.type) {
    case BlockType::Records:
      return header.records > 0 && header.payload_size / sizeof(TraceRecord) == header.records &&
             header.first_time <= header.last_time;
    case BlockType::End:
      return header.payload_size >= sizeof(End);
    default:  // from a later version
      return true;
  }
}

}  // namespace

void seal(BlockHeader& header, std::span<const std::byte> payload) {
  header.payload_checksum = crc32c(payload);
  header.header_checksum = header_checksum(header);
}

std::optional<BlockHeader> block_at(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(BlockHeader)) return std::nullopt;
  BlockHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != block_magic || header.header_checksum != header_checksum(header) ||
      !makes_sense(header)) {
    return std::nullopt;
  }
  return header;
}

bool payload_is_whole(const BlockHeader& header, std::span<const std::byte> payload) {
  return payload.size() == header.payload_size && header.payload_checksum == crc32c(payload);
}

}  // namespace cuvmm::trace_format
