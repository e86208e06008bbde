// SPDX-License-Identifier: Apache-2.0
// What two processes that share memory say to each other. Each message is one packet of a Unix
// socket: a header, then the kind's own fields, then nothing. Both run on one machine, so numbers
// are as the machine has them.
//
//   importer                          exporter
//   Hello    version, token     →
//                               ←     Welcome   or Refused
//   Ask      which, its secret  →                              (only for what must be asked for)
//                               ←     Grant     or Refused
//   Fetch    from which chunk   →
//                               ←     Chunks    descriptors, at most 253 a packet
//   Acknowledge                 →
//   Release                     →
//                               ←     Released
#pragma once

#include <cstddef>
#include <span>
#include <variant>
#include <vector>

#include "base/size.hpp"
#include "share/token.hpp"

namespace cuvmm::share {

inline constexpr std::uint16_t protocol_version = 1;
// The kernel takes no more with one packet.
inline constexpr std::size_t most_descriptors = 253;
// Sixteen tebibytes in granules of two mebibytes: more than any machine has.
inline constexpr std::uint32_t most_chunks = 1u << 23;

enum class GrantAccess : std::uint32_t { ReadWrite = 0, ReadOnly = 1 };

enum class Refusal : std::uint32_t {
  Version = 1,    // the exporter speaks another version
  Token = 2,      // not the one beside the socket
  TooMany = 3,    // as many importers as may be
  Unknown = 4,    // no such memory, or a wrong secret
  Freed = 5,      // the memory was freed
  Failed = 6,     // the exporter could not; its log says why
  OutOfTurn = 7,  // not what may be said now
  Ended = 8,      // the exporter goes, and has granted this importer nothing
};
const char* name_of(Refusal refusal);

struct Hello {
  Token token;
};
struct Welcome {
  std::uint32_t process = 0;
  std::uint32_t reserved = 0;
};
struct Ask {
  std::uint64_t memory = 0;
  Token secret;
};
// Memory that the importer may have: chunks in a row, of which it may use `size` bytes from
// `offset` on.
struct Grant {
  std::uint64_t id = 0;
  Size total = 0;  // of all its chunks
  Size offset = 0;
  Size size = 0;
  std::uint32_t chunks = 0;
  GrantAccess access = GrantAccess::ReadWrite;
  std::uint64_t tag = 0;  // what the exporter's program says of it
};
struct Fetch {
  std::uint64_t grant = 0;
  std::uint32_t first = 0;
  std::uint32_t reserved = 0;
};
struct Chunks {
  std::uint64_t grant = 0;
  std::uint32_t first = 0;
  std::vector<Size> sizes;  // as many as descriptors
};
struct Acknowledge {
  std::uint64_t grant = 0;
  std::uint32_t status = 0;  // 0: all is well; else what the two programs agreed on
  std::uint32_t reserved = 0;
};
struct Release {
  std::uint64_t grant = 0;
};
struct Released {
  std::uint64_t grant = 0;
};
struct Refused {
  Refusal why = Refusal::Failed;
  std::uint32_t version = protocol_version;  // that the exporter speaks
};

using Message = std::variant<Hello, Welcome, Ask, Grant, Fetch, Chunks, Acknowledge, Release,
                             Released, Refused>;

// No packet is longer.
inline constexpr std::size_t longest_packet = 32 + most_descriptors * sizeof(Size);

// The bytes of a message in `room`, which holds longest_packet.
std::span<const std::byte> encode(const Message& message, std::span<std::byte> room);

// What has come, checked in full: lengths, ranges, and that as many descriptors came with it as it
// says. Another version than ours is NotAvailable; anything else wrong is InvalidArgument.
Result<Message> decode(std::span<const std::byte> packet, std::size_t descriptors);

}  // namespace cuvmm::share
