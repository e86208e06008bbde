// SPDX-License-Identifier: Apache-2.0
#include "node/message.hpp"

#include <algorithm>
#include <type_traits>

namespace cuvmm::node {
namespace {

constexpr std::uint32_t message_mark = 0x444E5643;  // "CVND"
constexpr std::size_t header_size = 8;              // mark, kind, and two bytes for later
constexpr const char* reading_message = "read a message of the node service";

// How many values an enum has that may travel.
template <class Enum>
constexpr std::uint8_t value_count = 0;
template <>
constexpr std::uint8_t value_count<ReclaimOutcome> = 3;
template <>
constexpr std::uint8_t value_count<RefusalReason> = 7;
template <>
constexpr std::uint8_t value_count<ReclaimStep> = 3;
template <>
constexpr std::uint8_t value_count<Rejection> = 4;

// People read names in a terminal.
bool is_readable(char letter) {
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

  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// Once something is wrong, all that follows reads as nothing.
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
    if (byte > 1) return fail("neither yes nor no");
    value = byte == 1;
  }
  template <class Enum>
  requires std::is_enum_v<Enum>
  void operator()(Enum& value) {
    std::uint8_t byte = 0;
    (*this)(byte);
    if (byte >= value_count<Enum>) return fail("a value that nobody knows");
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

  const char* why_not() const { return why_not_; }

 private:
  void fail(const char* why) {
    if (why_not_ == nullptr) why_not_ = why;
    bytes_ = {};
  }

  std::span<const std::byte> bytes_;
  const char* why_not_ = nullptr;
};

template <class Kind>
Result<NodeMessage> read_body(MessageReader& reader) {
  Kind message;
  Kind::fields(message, reader);
  if (reader.why_not() != nullptr) return Error::invalid(reading_message, reader.why_not());
  return NodeMessage{std::move(message)};
}

template <std::size_t... kinds>
std::optional<Result<NodeMessage>> read_kind(std::size_t wanted, MessageReader& reader,
                                             std::index_sequence<kinds...>) {
  std::optional<Result<NodeMessage>> read;
  ((wanted == kinds
        ? void(read.emplace(read_body<std::variant_alternative_t<kinds, NodeMessage>>(reader)))
        : void()),
   ...);
  return read;
}

}  // namespace

std::vector<std::byte> encode(const NodeMessage& message) {
  MessageWriter writer;
  writer(message_mark);
  writer(static_cast<std::uint16_t>(message.index() + 1));
  writer(std::uint16_t{0});
  std::visit([&](const auto& said) { std::remove_cvref_t<decltype(said)>::fields(said, writer); },
             message);
  return writer.take();
}

Result<NodeMessage> decode(std::span<const std::byte> packet) {
  if (packet.size() < header_size || packet.size() > longest_message) {
    return Error::invalid(reading_message, "a message of the wrong length", packet.size());
  }
  MessageReader reader{packet};
  std::uint32_t mark = 0;
  std::uint16_t kind = 0;
  std::uint16_t for_later = 0;
  reader(mark);
  reader(kind);
  reader(for_later);
  if (mark != message_mark) return Error::invalid(reading_message, "not a message of cuvmm's");
  constexpr auto kinds = std::make_index_sequence<std::variant_size_v<NodeMessage>>{};
  auto read = read_kind(std::size_t{kind} - 1, reader, kinds);
  if (read) return *std::move(read);
  return Error{.kind = ErrorKind::NotAvailable,
               .doing = reading_message,
               .subject = "a kind that this version does not know"};
}

std::optional<std::uint16_t> common_version(const Greeting& greeting) {
  const std::uint16_t version = std::min(greeting.newest, newest_protocol);
  if (version < greeting.oldest || version < oldest_protocol) return {};
  return version;
}

}  // namespace cuvmm::node
