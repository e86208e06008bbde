// SPDX-License-Identifier: Apache-2.0
// Encodes and decodes both families of the node service's messages.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.hpp"
#include "node/message.hpp"

namespace cuvmm::node {

inline constexpr std::uint32_t message_mark = 0x444E5643;  // "CVND"
inline constexpr std::size_t header_size = 8;              // mark, kind, and two reserved bytes
inline constexpr const char* reading_message = "read a message of the node service";

// The number of values of each enum that messages carry.
template <class Enum>
inline constexpr std::uint8_t value_count = 0;
template <>
inline constexpr std::uint8_t value_count<ReclaimOutcome> = 3;
template <>
inline constexpr std::uint8_t value_count<RefusalReason> = 8;
template <>
inline constexpr std::uint8_t value_count<ReclaimStep> = 3;
template <>
inline constexpr std::uint8_t value_count<Rejection> = 4;
template <>
inline constexpr std::uint8_t value_count<PlaceKind> = 2;
template <>
inline constexpr std::uint8_t value_count<ReclaimEnd> = 4;
template <>
inline constexpr std::uint8_t value_count<GroupStep> = 4;
template <>
inline constexpr std::uint8_t value_count<PresenceStep> = 4;
template <>
inline constexpr std::uint8_t value_count<PresenceNow> = 3;
template <>
inline constexpr std::uint8_t value_count<DeviceStay> = 5;

// Names are printed to terminals, so control characters are not allowed.
inline bool is_readable(char letter) {
  return static_cast<unsigned char>(letter) >= 0x20 && letter != 0x7F;
}

class MessageWriter {
 public:
  template <class Number>
  requires std::is_integral_v<Number>
  void operator()(Number number) {
    const auto bits = static_cast<std::uint64_t>(number);
    for (std::size_t i = 0; i < sizeof number; ++i) {
      bytes_.push_back(static_cast<std::byte>(bits >> (8 * i)));
    }
  }
  template <class Enum>
  requires std::is_enum_v<Enum>
  void operator()(Enum value) { (*this)(static_cast<std::uint8_t>(value)); }
  void operator()(const PlaceUuid& uuid) {
    for (const std::uint8_t byte : uuid) (*this)(byte);
  }
  void operator()(const std::string& text) {
    const std::size_t size = std::min(text.size(), longest_name);
    (*this)(static_cast<std::uint8_t>(size));
    for (std::size_t i = 0; i < size; ++i) {
      (*this)(static_cast<std::uint8_t>(is_readable(text[i]) ? text[i] : '?'));
    }
  }
  void operator()(const std::vector<HolderNamed>& holders) {
    const std::size_t count = std::min(holders.size(), most_holders);
    (*this)(static_cast<std::uint8_t>(count));
    for (std::size_t i = 0; i < count; ++i) HolderNamed::fields(holders[i], *this);
  }
  void operator()(const std::vector<ShareKey>& keys) {
    const std::size_t count = std::min(keys.size(), most_share_keys);
    (*this)(static_cast<std::uint8_t>(count));
    for (std::size_t i = 0; i < count; ++i) (*this)(keys[i]);
  }
  void operator()(const ContextSizes& sizes) {
    const std::size_t count = std::min(sizes.size(), most_context_sizes);
    (*this)(static_cast<std::uint8_t>(count));
    for (std::size_t i = 0; i < count; ++i) (*this)(sizes[i]);
  }

  // A field that a later version added to the end of its message.
  template <class Value>
  void operator()(const std::optional<Value>& value) {
    if (value) (*this)(*value);
  }

  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// After the first error it consumes nothing more; why_not() returns that error.
class MessageReader {
 public:
  explicit MessageReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class Number>
  requires std::is_integral_v<Number>
  void operator()(Number& number) {
    std::uint64_t bits = 0;
    if (bytes_.size() < sizeof number) return fail("a message ends too early");
    for (std::size_t i = 0; i < sizeof number; ++i) {
      bits |= std::to_integer<std::uint64_t>(bytes_[i]) << (8 * i);
    }
    bytes_ = bytes_.subspan(sizeof number);
    number = static_cast<Number>(bits);
  }
  void operator()(bool& value) {
    std::uint8_t byte = 0;
    (*this)(byte);
    if (byte > 1) return fail("a boolean is neither 0 nor 1");
    value = byte == 1;
  }
  template <class Enum>
  requires std::is_enum_v<Enum>
  void operator()(Enum& value) {
    std::uint8_t byte = 0;
    (*this)(byte);
    if (byte >= value_count<Enum>) return fail("an unknown value");
    value = static_cast<Enum>(byte);
  }
  void operator()(PlaceUuid& uuid) {
    for (std::uint8_t& byte : uuid) (*this)(byte);
  }
  void operator()(std::string& text) {
    std::uint8_t size = 0;
    (*this)(size);
    if (size > longest_name) return fail("a name that is too long");
    for (std::uint8_t i = 0; i < size && why_not_ == nullptr; ++i) {
      char letter = 0;
      (*this)(letter);
      if (!is_readable(letter)) return fail("a name that cannot be read");
      text.push_back(letter);
    }
  }
  void operator()(std::vector<HolderNamed>& holders) {
    std::uint8_t count = 0;
    (*this)(count);
    if (count > most_holders) return fail("more holders than are named");
    for (std::uint8_t i = 0; i < count && why_not_ == nullptr; ++i) {
      HolderNamed::fields(holders.emplace_back(), *this);
    }
  }
  void operator()(std::vector<ShareKey>& keys) {
    std::uint8_t count = 0;
    (*this)(count);
    if (count > most_share_keys) return fail("more keys than a message has");
    for (std::uint8_t i = 0; i < count && why_not_ == nullptr; ++i) (*this)(keys.emplace_back());
  }
  void operator()(ContextSizes& sizes) {
    std::uint8_t count = 0;
    (*this)(count);
    if (count > most_context_sizes) return fail("more devices than a message has");
    for (std::uint8_t i = 0; i < count && why_not_ == nullptr; ++i) (*this)(sizes.emplace_back());
  }

  // Empty if the sender's version does not have the field.
  template <class Value>
  void operator()(std::optional<Value>& value) {
    if (!bytes_.empty()) (*this)(value.emplace());
  }

  const char* why_not() const { return why_not_; }

 private:
  void fail(const char* why) {
    if (why_not_ == nullptr) why_not_ = why;
    bytes_ = {};
  }

  std::span<const std::byte> bytes_;
  const char* why_not_ = nullptr;
};

template <class Family, class Kind>
Result<Family> read_body(MessageReader& reader) {
  Kind message;
  Kind::fields(message, reader);
  if (reader.why_not() != nullptr) return Error::invalid(reading_message, reader.why_not());
  return Family{std::move(message)};
}

template <class Family, std::size_t... kinds>
std::optional<Result<Family>> read_kind(std::size_t wanted, MessageReader& reader,
                                        std::index_sequence<kinds...>) {
  std::optional<Result<Family>> read;
  ((wanted == kinds
        ? void(read.emplace(read_body<Family, std::variant_alternative_t<kinds, Family>>(reader)))
        : void()),
   ...);
  return read;
}

// A kind's number at compile time, so that the sender of one kind links no code for the others.
template <class Kind, std::size_t... kinds>
constexpr std::uint16_t number_of_kind(std::index_sequence<kinds...>) {
  std::uint16_t number = 0;
  ((std::is_same_v<Kind, std::variant_alternative_t<kinds, NodeMessage>>
        ? void(number = static_cast<std::uint16_t>(kinds + 1))
        : void()),
   ...);
  return number;
}
template <class Kind>
inline constexpr std::uint16_t kind_number =
    number_of_kind<Kind>(std::make_index_sequence<std::variant_size_v<NodeMessage>>{});

inline void write_header(MessageWriter& writer, std::uint16_t kind) {
  writer(message_mark);
  writer(kind);
  writer(std::uint16_t{0});
}

template <class Kind>
std::vector<std::byte> encode_one(const Kind& message) {
  MessageWriter writer;
  write_header(writer, kind_number<Kind>);
  Kind::fields(message, writer);
  return writer.take();
}

// Checks the header of a packet of `size` bytes. Returns the message's kind.
inline Result<std::uint16_t> read_header(MessageReader& reader, std::size_t size) {
  if (size < header_size || size > longest_message) {
    return Error::invalid(reading_message, "a message of the wrong length", size);
  }
  std::uint32_t mark = 0;
  std::uint16_t kind = 0;
  std::uint16_t for_later = 0;
  reader(mark);
  reader(kind);
  reader(for_later);
  if (mark != message_mark) return Error::invalid(reading_message, "not a message of cuvmm's");
  return kind;
}

// Passes the packet's message to `hear` if it is one of these kinds, and ignores all other kinds.
// Returns false if the packet is malformed or `hear` returns false.
template <class... Kinds, class Hear>
bool hear_one_of(std::span<const std::byte> packet, Hear&& hear) {
  MessageReader reader{packet};
  const auto kind = read_header(reader, packet.size());
  if (!kind.ok()) return false;
  bool goes_on = true;
  const auto read = [&]<class Kind>(Kind message) {
    Kind::fields(message, reader);
    goes_on = reader.why_not() == nullptr && hear(message);
  };
  ((*kind == kind_number<Kinds> ? read(Kinds{}) : void()), ...);
  return goes_on;
}

// A family's kinds are numbered from `first`.
template <std::uint16_t first, class Family>
std::vector<std::byte> encode_as(const Family& message) {
  MessageWriter writer;
  write_header(writer, static_cast<std::uint16_t>(message.index() + first));
  std::visit([&](const auto& said) { std::remove_cvref_t<decltype(said)>::fields(said, writer); },
             message);
  return writer.take();
}

template <std::uint16_t first, class Family>
Result<Family> decode_as(std::span<const std::byte> packet) {
  MessageReader reader{packet};
  const std::uint16_t kind = TRY(read_header(reader, packet.size()));
  constexpr auto kinds = std::make_index_sequence<std::variant_size_v<Family>>{};
  auto read = read_kind<Family>(std::size_t{kind} - first, reader, kinds);
  if (read) return *std::move(read);
  return Error{.kind = ErrorKind::NotAvailable,
               .doing = reading_message,
               .subject = "a kind that this version does not know"};
}

}  // namespace cuvmm::node
