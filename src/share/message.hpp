// SPDX-License-Identifier: Apache-2.0
// The protocol between two processes that share memory. Each message is one packet of a Unix
// socket: a header, then the fields of its kind. Both processes run on one machine, so integers
// have native byte order.
//
//   importer                          exporter
//   Hello    version, token     →
//                               ←     Welcome   or Refused
//   Ask      which, its secret  →                              (only for memory granted on request)
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
// The kernel's limit for one packet (SCM_MAX_FD).
inline constexpr std::size_t most_descriptors = 253;
// Sixteen tebibytes in granules of two mebibytes: more than any machine has.
inline constexpr std::uint32_t most_chunks = 1u << 23;

enum class GrantAccess : std::uint32_t { ReadWrite = 0, ReadOnly = 1 };

enum class Refusal : std::uint32_t {
  Version = 1,    // the exporter speaks another version
  Token = 2,      // wrong token
  TooMany = 3,    // the exporter has reached its limit of importers
  Unknown = 4,    // no such memory, or a wrong secret
  Freed = 5,      // the memory was freed
  Failed = 6,     // the exporter failed; its log says why
  OutOfTurn = 7,  // the message is not valid in this state
  Ended = 8,      // the exporter ends without having granted this importer anything
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
// Memory granted to the importer: a row of chunks, of which it may use `size` bytes from `offset`
// on.
struct Grant {
  std::uint64_t id = 0;
  Size total = 0;  // of all its chunks
  Size offset = 0;
  Size size = 0;
  std::uint32_t chunks = 0;
  GrantAccess access = GrantAccess::ReadWrite;
  std::uint64_t tag = 0;  // chosen by the exporter's program
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
  std::uint32_t status = 0;  // 0: success; other values are up to the two programs
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
  std::uint32_t version = protocol_version;  // the exporter's
};

using Message = std::variant<Hello, Welcome, Ask, Grant, Fetch, Chunks, Acknowledge, Release,
                             Released, Refused>;

// The maximum size of a packet.
inline constexpr std::size_t longest_packet = 32 + most_descriptors * sizeof(Size);

// Encodes a message into `room`, which has longest_packet bytes, and returns the part used.
std::span<const std::byte> encode(const Message& message, std::span<std::byte> room);

// How many descriptors the sender says came with a packet.
std::size_t descriptors_of(std::span<const std::byte> packet);

// Decodes and fully validates a packet: lengths, ranges, and the number of descriptors that came
// with it. NotAvailable if the sender has another version; InvalidArgument for any other defect.
Result<Message> decode(std::span<const std::byte> packet, std::size_t descriptors);

}  // namespace cuvmm::share
