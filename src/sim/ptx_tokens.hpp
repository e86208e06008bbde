// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace cuvmm::sim {

// Splits PTX text into words, numbers, strings and single characters, without comments and blanks.
class PtxTokens {
 public:
  explicit PtxTokens(std::string_view text) : rest_(text) { advance(); }

  // Empty at the end of the text.
  std::string_view now() const { return now_; }
  bool at_end() const { return now_.empty(); }
  // Whether it met an unterminated comment or string, or a byte that PTX does not allow.
  bool is_broken() const { return broken_; }

  std::string_view take() {
    const std::string_view taken = now_;
    advance();
    return taken;
  }
  bool skip(std::string_view token) {
    if (now_ != token) return false;
    advance();
    return true;
  }

  // Precondition: at `open`. Skips past the matching `close`; returns false if there is none.
  bool skip_balanced(char open, char close);

 private:
  void advance();
  void skip_blanks_and_comments();
  void fail();

  std::string_view rest_;
  std::string_view now_;
  bool broken_ = false;
};

// Names, directives (".entry") and registers ("%r1").
bool is_ptx_name(std::string_view token);
bool is_ptx_directive(std::string_view token);

// "12", "0x1f", "017", "0b11", with an optional U.
std::optional<std::uint64_t> read_ptx_integer(std::string_view token);
// "0f3f800000" (4 bytes), "0d..." (8 bytes), "1.5". Returns the bits of a float of this size.
std::optional<std::uint64_t> read_ptx_float(std::string_view token, unsigned size);

}  // namespace cuvmm::sim
