// SPDX-License-Identifier: Apache-2.0
// Parsing words and numbers, independently of the locale.
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

constexpr char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool equal_in_any_case(std::string_view a, std::string_view b);
std::string_view without_outer_blanks(std::string_view text);

// A decimal number without sign or exponent, stored as integers to avoid rounding.
struct Decimal {
  static constexpr std::uint64_t scale = 1'000'000'000;
  std::uint64_t whole = 0;
  std::uint64_t fraction = 0;  // in billionths; further digits are ignored
};

// Remove a number from the front of `text`. Return nullopt if there is none or it does not fit.
std::optional<std::uint64_t> take_whole_number(std::string_view& text);
std::optional<Decimal> take_decimal(std::string_view& text);

// All of `text` as one whole number, with an optional minus.
std::optional<std::int64_t> read_integer(std::string_view text);

}  // namespace cuvmm
