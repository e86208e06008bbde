// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/result.hpp"

namespace cuvmm::share {

// 128 bits that nobody guesses: who knows them may have what they stand for. Never logged.
struct Token {
  std::array<std::uint8_t, 16> bytes{};

  static Result<Token> make();

  // Takes as long for any two tokens.
  friend bool same(const Token& a, const Token& b);
};

// The file beside a socket that holds its token, for its owner alone.
Result<void> write_token(const std::string& path, const Token& token);
// Refused where the file is not its owner's alone, and ours.
Result<Token> read_token(const std::string& path);

}  // namespace cuvmm::share
