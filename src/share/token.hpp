// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/result.hpp"

namespace cuvmm::share {

// 128 random bits. A process that knows them may open the socket or the memory that they protect.
// Never logged.
struct Token {
  std::array<std::uint8_t, 16> bytes{};

  static Result<Token> make();

  // Takes constant time.
  friend bool same(const Token& a, const Token& b);
};

// The file beside a socket that holds its token, readable only by its owner.
Result<void> write_token(const std::string& path, const Token& token);
// An Error if the file does not belong to this user, or others may access it.
Result<Token> read_token(const std::string& path);

}  // namespace cuvmm::share
