// SPDX-License-Identifier: Apache-2.0
#include "share/message.hpp"

#include <cstring>
#include <type_traits>

namespace cuvmm::share {
namespace {

// The first three fields must never change, in any version.
struct Header {
  std::uint32_t magic = 0;
  std::uint16_t version = 0;
  std::uint16_t kind = 0;  // the index in Message, plus 1
  std::uint32_t body = 0;  // bytes that follow
  std::uint32_t descriptors = 0;
};
static_assert(sizeof(Header) == 16);

constexpr std::uint32_t magic = 0x48535643;  // "CVSH"
constexpr const char* reading = "read a message";

// Chunks on the wire; the sizes follow.
struct ChunksBody {
  std::uint64_t grant = 0;
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};
static_assert(sizeof(Header) + sizeof(ChunksBody) + most_descriptors * sizeof(Size) ==
              longest_packet);

Error wrong(const char* why) {
  return Error::invalid(reading, why);
}

class Writer {
 public:
  explicit Writer(std::span<std::byte> room) : room_(room) {}
  template <class T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T> && std::has_unique_object_representations_v<T>,
                  "nothing but its fields may travel");
    std::memcpy(room_.data() + size_, &value, sizeof value);
    size_ += sizeof value;
  }
  std::size_t size() const { return size_; }

 private:
  std::span<std::byte> room_;
  std::size_t size_ = 0;
};

template <class T>
T taken(std::span<const std::byte> body) {
  T value;
  std::memcpy(static_cast<void*>(&value), body.data(), sizeof value);
  return value;
}

Result<Message> check(const Grant& grant) {
  if (grant.chunks == 0 || grant.chunks > most_chunks) return wrong("a grant of no chunks");
  if (grant.size == 0 || grant.offset > grant.total || grant.size > grant.total - grant.offset) {
    return wrong("a grant reaches over its chunks");
  }
  if (grant.access != GrantAccess::ReadWrite && grant.access != GrantAccess::ReadOnly) {
    return wrong("a grant of unknown access");
  }
  return Message{grant};
}
Result<Message> check(const Fetch& fetch) {
  if (fetch.first >= most_chunks) return wrong("chunks beyond any grant are asked for");
  return Message{fetch};
}
template <class T>
Result<Message> check(const T& message) {
  return Message{message};
}

template <class T>
Result<Message> fixed(std::span<const std::byte> body, std::size_t descriptors) {
  if (body.size() != sizeof(T)) return wrong("a message of the wrong length");
  if (descriptors != 0) return wrong("descriptors come with a message that has none");
  return check(taken<T>(body));
}

template <>
Result<Message> fixed<Chunks>(std::span<const std::byte> body, std::size_t descriptors) {
  if (body.size() < sizeof(ChunksBody)) return wrong("a message of the wrong length");
  const auto head = taken<ChunksBody>(body);
  const auto rest = body.subspan(sizeof head);
  if (head.count == 0 || head.count > most_descriptors) return wrong("invalid number of chunks");
  if (rest.size() != head.count * sizeof(Size)) return wrong("a message of the wrong length");
  if (descriptors != head.count) return wrong("not as many descriptors as chunks");
  if (head.first >= most_chunks) return wrong("chunks beyond any grant");
  Chunks chunks{.grant = head.grant, .first = head.first, .sizes = {}};
  chunks.sizes.resize(head.count);
  std::memcpy(chunks.sizes.data(), rest.data(), rest.size());
  for (const Size size : chunks.sizes) {
    if (size == 0) return wrong("a chunk of no bytes");
  }
  return Message{std::move(chunks)};
}

template <std::size_t... kinds>
Result<Message> decode_kind(std::size_t kind, std::span<const std::byte> body,
                            std::size_t descriptors, std::index_sequence<kinds...>) {
  Result<Message> decoded = wrong("a message of unknown kind");
  ((kind == kinds
        ? void(decoded = fixed<std::variant_alternative_t<kinds, Message>>(body, descriptors))
        : void()),
   ...);
  return decoded;
}

}  // namespace

const char* name_of(Refusal refusal) {
  switch (refusal) {
    case Refusal::Version:
      return "the exporter speaks another version of the protocol";
    case Refusal::Token:
      return "the exporter does not know this token";
    case Refusal::TooMany:
      return "the exporter has as many importers as it accepts";
    case Refusal::Unknown:
      return "the exporter knows no such memory";
    case Refusal::Freed:
      return "the memory was freed by its owner";
    case Refusal::Failed:
      return "the exporter could not; its log says why";
    case Refusal::OutOfTurn:
      return "the message is not allowed in this state";
    case Refusal::Ended:
      return "the exporter has ended without giving this process any memory";
  }
  return "refused for an unknown reason";
}

std::span<const std::byte> encode(const Message& message, std::span<std::byte> room) {
  Writer body{room.subspan(sizeof(Header))};
  std::uint32_t descriptors = 0;
  std::visit(
      [&](const auto& said) {
        using T = std::decay_t<decltype(said)>;
        if constexpr (std::is_same_v<T, Chunks>) {
          descriptors = static_cast<std::uint32_t>(said.sizes.size());
          body.put(ChunksBody{said.grant, said.first, descriptors});
          for (const Size size : said.sizes) body.put(size);
        } else {
          body.put(said);
        }
      },
      message);
  Writer header{room};
  header.put(Header{magic, protocol_version, static_cast<std::uint16_t>(message.index() + 1),
                    static_cast<std::uint32_t>(body.size()), descriptors});
  return room.first(header.size() + body.size());
}

std::size_t descriptors_of(std::span<const std::byte> packet) {
  return packet.size() < sizeof(Header) ? 0 : taken<Header>(packet).descriptors;
}

Result<Message> decode(std::span<const std::byte> packet, std::size_t descriptors) {
  if (packet.size() < sizeof(Header) || packet.size() > longest_packet) {
    return wrong("a message of the wrong length");
  }
  const auto header = taken<Header>(packet);
  if (header.magic != magic) return wrong("not a message of cuvmm's");
  if (header.version != protocol_version) {
    return Error{.kind = ErrorKind::NotAvailable, .doing = reading, .subject = "another version"};
  }
  const auto body = packet.subspan(sizeof header);
  if (header.body != body.size()) return wrong("a message of the wrong length");
  if (header.descriptors != descriptors) return wrong("not as many descriptors as it says");
  return decode_kind(std::size_t{header.kind} - 1, body, descriptors,
                     std::make_index_sequence<std::variant_size_v<Message>>{});
}

}  // namespace cuvmm::share
