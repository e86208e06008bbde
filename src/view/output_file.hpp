// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "base/fd.hpp"
#include "base/result.hpp"

namespace cuvmm::view {

// A file that appears only when complete: it gets its name once everything is written. "-" is
// standard output.
class OutputFile {
 public:
  static Result<OutputFile> create(const std::string& path);
  ~OutputFile();
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;

  // Errors are reported by finish().
  void write(std::string_view bytes);
  bool has_failed() const { return error_ != 0; }
  Result<void> finish();

 private:
  OutputFile(Fd file, std::string path, std::string draft);
  void flush();

  Fd file_;
  std::string path_;
  std::string draft_;  // temporary name; empty if it is written in place
  std::string buffer_;
  int error_ = 0;
};

}  // namespace cuvmm::view
