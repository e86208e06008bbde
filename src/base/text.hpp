// SPDX-License-Identifier: Apache-2.0
// Reading words and numbers the same way in every locale.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace cuvmm {

constexpr bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
constexpr char upper(char c) {
  return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
}

bool equal_in_any_case(std::string_view a, std::string_view b);
std::string_view without_outer_blanks(std::string_view text);

// A decimal number without sign or exponent, kept in integers so that nothing is rounded.
struct Decimal {
  static constexpr std::uint64_t scale = 1'000'000'000;
  std::uint64_t whole = 0;
  std::uint64_t fraction = 0;  // in billionths; digits past the ninth do not count
};

// Take a number off the front of `text`. Nothing where there is none or it does not fit.
std::optional<std::uint64_t> take_whole_number(std::string_view& text);
std::optional<Decimal> take_decimal(std::string_view& text);

// All of `text` as one whole number, with an optional minus.
std::optional<std::int64_t> read_integer(std::string_view text);

}  // namespace cuvmm
