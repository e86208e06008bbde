// SPDX-License-Identifier: Apache-2.0
#include "base/file.hpp"

#include <fcntl.h>
#include <sys/stat.h>

namespace cuvmm {
namespace {

std::string host_name() {
  char name[256] = "";
  if (::gethostname(name, sizeof name - 1) != 0) return "unknown";
  std::string text = name;
  for (char& c : text) {
    if (c == '/') c = '_';
  }
  return text;
}

}  // namespace

std::string expand_file_name(std::string_view pattern) {
  std::string path;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char next = pattern[i] == '%' && i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (next == 'p') {
      path += std::to_string(::getpid());
    } else if (next == 'h') {
      path += host_name();
    } else if (next == '%') {
      path += '%';
    } else {
      path += pattern[i];
      continue;
    }
    ++i;
  }
  return path;
}

Result<Fd> open_private_file_to_add_to(const std::string& path) {
  // O_NONBLOCK: opening a pipe without a reader must not block the program.
  Fd file{::open(path.c_str(),
                 O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK,
                 S_IRUSR | S_IWUSR)};
  struct stat facts;
  if (!file.is_open() || ::fstat(file.number(), &facts) != 0) {
    return Error{.kind = ErrorKind::SystemFailed, .system_code = errno, .doing = "open file"};
  }
  const bool ours = S_ISREG(facts.st_mode) && facts.st_uid == ::geteuid();
  if (!ours && !S_ISCHR(facts.st_mode)) {
    return Error::invalid("open file", "not a plain file of this user's");
  }
  return file;
}

}  // namespace cuvmm
