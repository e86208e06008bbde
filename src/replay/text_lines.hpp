// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace cuvmm::replay {

// An error in a file that is being read.
Error unreadable(const std::string& why);

// All bytes of a file, decompressed if gzip compressed it. Refused if there are more than
// `most_bytes`.
Result<std::string> read_whole(const std::string& path, Size most_bytes);

// Reads a text file, compressed by gzip or not, line by line.
class TextLines {
 public:
  static Result<TextLines> open(const std::string& path);

  // The next line without its end, valid until the next call; false at the end of the file.
  Result<bool> next(std::string_view& line);

  // The number, from 1, of the line read last.
  std::uint64_t number() const { return number_; }
  // An error in that line.
  Error error(const std::string& why) const { return error_at(number_, why); }

 private:
  struct Close {
    void operator()(void* file) const;
  };
  explicit TextLines(void* file);
  static Error error_at(std::uint64_t line, const std::string& why);
  Result<void> read_more();

  std::unique_ptr<void, Close> file_;  // zlib's
  std::vector<char> buffer_;
  std::size_t begin_ = 0;  // of the unread bytes in buffer_
  std::size_t end_ = 0;
  bool at_end_ = false;
  std::uint64_t number_ = 0;
};

}  // namespace cuvmm::replay
