// SPDX-License-Identifier: Apache-2.0
#include "base/installed_file.hpp"

#include <filesystem>

namespace cuvmm {

namespace fs = std::filesystem;

Result<std::string> find_installed_file(const char* what, const char* missing,
                                        std::initializer_list<const char*> places) {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) {
    return Error{.kind = ErrorKind::SystemFailed,
                 .system_code = error.value(),
                 .doing = "find our own program"};
  }
  for (const char* place : places) {
    const fs::path candidate = program.parent_path() / place / what;
    if (fs::exists(candidate, error)) return fs::canonical(candidate, error).string();
  }
  return Error{.kind = ErrorKind::NotFound, .doing = missing, .subject = what};
}

}  // namespace cuvmm
