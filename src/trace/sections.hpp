// SPDX-License-Identifier: Apache-2.0
// Writes numbers, texts and lists of texts into sections. A text is its length followed by its
// bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "trace/format.hpp"

namespace cuvmm::trace_format {

class SectionWriter {
 public:
  void begin(SectionType type) {
    begun_ = bytes_.size();
    number(SectionHeader{.type = static_cast<std::uint32_t>(type), .size = 0});
  }
  void end() {
    const auto size = static_cast<std::uint32_t>(bytes_.size() - begun_ - sizeof(SectionHeader));
    std::memcpy(bytes_.data() + begun_ + offsetof(SectionHeader, size), &size, sizeof size);
    bytes_.resize((bytes_.size() + 7) / 8 * 8);
  }

  template <class T>
  void number(T value) {
    static_assert(std::has_unique_object_representations_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(std::string_view text) {
    number(static_cast<std::uint32_t>(text.size()));
    bytes_ += text;
  }

  void section(SectionType type, std::string_view whole) {
    begin(type);
    bytes_ += whole;
    end();
  }
  void section(SectionType type, const std::vector<std::string>& list) {
    begin(type);
    number(static_cast<std::uint32_t>(list.size()));
    for (const std::string& one : list) text(one);
    end();
  }

  // Returns the bytes written, padded with zeros to a multiple of 64.
  std::string take() {
    bytes_.resize(whole_units(bytes_.size()));
    return std::move(bytes_);
  }

 private:
  std::string bytes_;
  std::size_t begun_ = 0;
};

// Reads untrusted bytes: never past the end, and after the first field that does not fit, only
// zeros and empty texts.
class SectionReader {
 public:
  explicit SectionReader(std::span<const std::byte> bytes) : left_(bytes) {}
  bool is_good() const { return is_good_; }

  template <class T>
  T number() {
    T value{};
    const auto bytes = take(sizeof value);
    if (is_good_) std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  std::string text() { return string_of(take(number<std::uint32_t>())); }
  std::string rest() { return string_of(take(left_.size())); }
  std::vector<std::string> texts() {
    std::vector<std::string> list;
    for (auto left = number<std::uint32_t>(); left > 0 && is_good_; --left) list.push_back(text());
    return list;
  }

  std::optional<std::pair<SectionType, SectionReader>> next_section() {
    if (left_.size() < sizeof(SectionHeader)) return std::nullopt;
    const auto head = number<SectionHeader>();
    if (static_cast<SectionType>(head.type) == SectionType::Nothing) return std::nullopt;
    const auto content = take(head.size);
    if (!is_good_) return std::nullopt;
    take(std::min<std::size_t>(left_.size(), (8 - head.size % 8) % 8));
    return std::pair{static_cast<SectionType>(head.type), SectionReader{content}};
  }

 private:
  std::span<const std::byte> take(std::size_t size) {
    is_good_ = is_good_ && size <= left_.size();
    if (!is_good_) return {};
    const auto taken = left_.first(size);
    left_ = left_.subspan(size);
    return taken;
  }
  static std::string string_of(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  std::span<const std::byte> left_;
  bool is_good_ = true;
};

}  // namespace cuvmm::trace_format
