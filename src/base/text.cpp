// SPDX-License-Identifier: Apache-2.0
#include "base/text.hpp"

namespace cuvmm {

bool equal_in_any_case(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (upper(a[i]) != upper(b[i])) return false;
  }
  return true;
}

std::string_view without_outer_blanks(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::optional<std::uint64_t> take_whole_number(std::string_view& text) {
  if (text.empty() || !is_digit(text.front())) return {};
  std::uint64_t number = 0;
  for (; !text.empty() && is_digit(text.front()); text.remove_prefix(1)) {
    const auto digit = static_cast<std::uint64_t>(text.front() - '0');
    if (number > (UINT64_MAX - digit) / 10) return {};
    number = number * 10 + digit;
  }
  return number;
}

std::optional<Decimal> take_decimal(std::string_view& text) {
  const auto whole = take_whole_number(text);
  if (!whole) return {};
  Decimal number{.whole = *whole};
  if (text.empty() || text.front() != '.') return number;
  text.remove_prefix(1);
  if (text.empty() || !is_digit(text.front())) return {};
  std::uint64_t place = Decimal::scale / 10;
  for (; !text.empty() && is_digit(text.front()); text.remove_prefix(1), place /= 10) {
    number.fraction += static_cast<std::uint64_t>(text.front() - '0') * place;
  }
  return number;
}

std::optional<std::int64_t> read_integer(std::string_view text) {
  const bool negative = !text.empty() && text.front() == '-';
  if (negative) text.remove_prefix(1);
  const auto number = take_whole_number(text);
  if (!number || !text.empty() || *number > INT64_MAX) return {};
  const auto value = static_cast<std::int64_t>(*number);
  return negative ? -value : value;
}

}  // namespace cuvmm
