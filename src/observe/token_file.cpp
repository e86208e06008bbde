// SPDX-License-Identifier: Apache-2.0
#include "observe/token_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "base/fd.hpp"
#include "base/text.hpp"
#include "share/system_error.hpp"

namespace cuvmm::observe {

Result<std::string> read_token(const std::string& path) {
  constexpr const char* doing = "read the token";
  constexpr std::size_t shortest = 16;
  const Fd file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  struct stat facts {};
  if (!file.is_open() || ::fstat(file.number(), &facts) != 0) return share::system_error(doing);
  if (!S_ISREG(facts.st_mode) || (facts.st_mode & (S_IWGRP | S_IRWXO)) != 0) {
    return Error::invalid(doing, "others may read or change its file; chmod 600 it");
  }
  std::array<char, 512> text{};
  const ssize_t got = ::read(file.number(), text.data(), text.size());
  if (got < 0) return share::system_error(doing);
  std::string_view line{text.data(), static_cast<std::size_t>(got)};
  line = without_outer_blanks(line.substr(0, line.find('\n')));
  const bool is_plain = std::all_of(line.begin(), line.end(), [](char letter) {
    return std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '-' ||
           letter == '_' || letter == '.' || letter == '~';
  });
  if (line.size() < shortest || !is_plain) {
    return Error::invalid(doing, "it needs 16 or more letters and digits (openssl rand -hex 24)");
  }
  return std::string{line};
}

}  // namespace cuvmm::observe
