// SPDX-License-Identifier: Apache-2.0
#include "sim/ptx_tokens.hpp"

#include <charconv>
#include <cstring>
#include <system_error>

namespace cuvmm::sim {
namespace {

constexpr bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
constexpr bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
constexpr bool is_blank(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}
constexpr bool begins_word(char c) {
  return is_letter(c) || c == '_' || c == '$' || c == '%' || c == '@';
}
constexpr bool continues_word(char c) {
  return is_letter(c) || is_digit(c) || c == '_' || c == '$' || c == '@';
}

template <class Number>
std::optional<Number> read_whole(std::string_view digits, int base) {
  Number number{};
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, number, base);
  if (digits.empty() || error != std::errc{} || stop != end) return std::nullopt;
  return number;
}

}  // namespace

void PtxTokens::fail() {
  broken_ = true;
  rest_ = {};
  now_ = {};
}

void PtxTokens::skip_blanks_and_comments() {
  while (!rest_.empty()) {
    if (is_blank(rest_.front())) {
      rest_.remove_prefix(1);
    } else if (rest_.substr(0, 2) == "//") {
      const std::size_t end = rest_.find('\n');
      rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end);
    } else if (rest_.substr(0, 2) == "/*") {
      const std::size_t end = rest_.find("*/", 2);
      if (end == std::string_view::npos) return fail();
      rest_.remove_prefix(end + 2);
    } else {
      return;
    }
  }
}

void PtxTokens::advance() {
  skip_blanks_and_comments();
  now_ = {};
  if (rest_.empty()) return;
  const char first = rest_.front();
  std::size_t length = 1;
  if (first == '"') {
    length = rest_.find('"', 1);
    if (length == std::string_view::npos) return fail();
    ++length;
  } else if (begins_word(first) || (first == '.' && rest_.size() > 1 && continues_word(rest_[1]) &&
                                    !is_digit(rest_[1]))) {
    while (length < rest_.size() && continues_word(rest_[length])) ++length;
  } else if (is_digit(first)) {
    while (length < rest_.size()) {
      const char c = rest_[length];
      const bool exponent_sign = (c == '+' || c == '-') && rest_.substr(0, 2) != "0x" &&
                                 (rest_[length - 1] == 'e' || rest_[length - 1] == 'E');
      if (!continues_word(c) && c != '.' && !exponent_sign) break;
      ++length;
    }
  } else if (first < ' ' || first > '~') {
    return fail();
  }
  now_ = rest_.substr(0, length);
  rest_.remove_prefix(length);
}

bool PtxTokens::skip_balanced(char open, char close) {
  std::size_t depth = 0;
  for (; !at_end(); advance()) {
    if (now_.size() != 1) continue;
    if (now_.front() == open) ++depth;
    if (now_.front() == close && --depth == 0) {
      advance();
      return true;
    }
  }
  return false;
}

bool is_ptx_name(std::string_view token) {
  return !token.empty() && begins_word(token.front()) && token.front() != '@';
}

bool is_ptx_directive(std::string_view token) {
  return token.size() > 1 && token.front() == '.';
}

std::optional<std::uint64_t> read_ptx_integer(std::string_view token) {
  if (!token.empty() && token.back() == 'U') token.remove_suffix(1);
  if (token.size() > 2 && token[0] == '0' && (token[1] == 'x' || token[1] == 'X')) {
    return read_whole<std::uint64_t>(token.substr(2), 16);
  }
  if (token.size() > 2 && token[0] == '0' && (token[1] == 'b' || token[1] == 'B')) {
    return read_whole<std::uint64_t>(token.substr(2), 2);
  }
  const bool octal = token.size() > 1 && token.front() == '0';
  return read_whole<std::uint64_t>(token, octal ? 8 : 10);
}

std::optional<std::uint64_t> read_ptx_float(std::string_view token, unsigned size) {
  const auto bits_of = [size](double value) {
    std::uint64_t bits = 0;
    const auto narrow = static_cast<float>(value);
    if (size == sizeof narrow) {
      std::memcpy(&bits, &narrow, sizeof narrow);
    } else {
      std::memcpy(&bits, &value, sizeof value);
    }
    return bits;
  };
  const std::string_view kind = token.substr(0, 2);
  if (kind == "0f" || kind == "0F") {
    const auto bits = read_whole<std::uint32_t>(token.substr(2), 16);
    if (!bits || size == sizeof(float)) return bits;
    float value = 0;
    std::memcpy(&value, &*bits, sizeof value);
    return bits_of(value);
  }
  if (kind == "0d" || kind == "0D") {
    const auto bits = read_whole<std::uint64_t>(token.substr(2), 16);
    if (!bits || size == sizeof(double)) return bits;
    double value = 0;
    std::memcpy(&value, &*bits, sizeof value);
    return bits_of(value);
  }
  double value = 0;
  const char* end = token.data() + token.size();
  const auto [stop, error] = std::from_chars(token.data(), end, value);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return bits_of(value);
}

}  // namespace cuvmm::sim
