// SPDX-License-Identifier: Apache-2.0
#include "base/file_identity.hpp"

#include <sys/stat.h>

#include <cerrno>

namespace cuvmm {

// Also called on error paths, so it preserves errno.
std::optional<FileIdentity> FileIdentity::of(int descriptor) {
  const int kept = errno;
  struct stat facts;
  const bool is_there = ::fstat(descriptor, &facts) == 0;
  errno = kept;
  if (!is_there) return {};
  return FileIdentity{facts.st_dev, facts.st_ino};
}

std::optional<FileIdentity> FileIdentity::at(const std::string& path) {
  const int kept = errno;
  struct stat facts;
  const bool is_there = ::lstat(path.c_str(), &facts) == 0;
  errno = kept;
  if (!is_there) return {};
  return FileIdentity{facts.st_dev, facts.st_ino};
}

}  // namespace cuvmm
