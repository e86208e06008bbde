// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "trace/checksum.hpp"
#include "trace/format.hpp"

namespace cuvmm::test {

// Recomputes the checksum of every block of a changed trace, as long as the sizes in it are valid,
// so that the reader accepts the change and reads on.
inline void mend_checksums(std::span<std::uint8_t> bytes) {
  using namespace trace_format;
  if (bytes.size() < sizeof(FileHeader)) return;
  FileHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  std::size_t at = header.header_size;
  while (at <= bytes.size() && bytes.size() - at >= sizeof(BlockHeader)) {
    BlockHeader block;
    std::memcpy(&block, bytes.data() + at, sizeof block);
    const std::size_t payload =
        std::min<std::size_t>(block.payload_size, bytes.size() - at - sizeof block);
    seal(block, std::as_bytes(bytes).subspan(at + sizeof block, payload));
    std::memcpy(bytes.data() + at, &block, sizeof block);
    at += sizeof block + payload;
    if (payload == 0) break;
  }
}

}  // namespace cuvmm::test
