// SPDX-License-Identifier: Apache-2.0
#include "replay/csv.hpp"

#include <charconv>

namespace cuvmm::replay {
namespace {

std::optional<std::uint64_t> read_number(std::string_view text, int base) {
  std::uint64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number, base);
  if (text.empty() || error != std::errc{} || stop != end) return {};
  return number;
}

bool has_prefix(std::string_view text) {
  return text.starts_with("0x") || text.starts_with("0X");
}

}  // namespace

std::optional<std::uint64_t> read_decimal(std::string_view text) {
  return read_number(text, 10);
}

std::optional<std::uint64_t> read_pointer(std::string_view text) {
  if (text == "(nil)") return 0;
  return read_number(has_prefix(text) ? text.substr(2) : text, 16);
}

std::optional<std::uint64_t> read_stream(std::string_view text) {
  return has_prefix(text) || text == "(nil)" ? read_pointer(text) : read_decimal(text);
}

}  // namespace cuvmm::replay
