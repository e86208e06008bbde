// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

namespace cuvmm {

// Identifies a file independently of its path and descriptor number.
struct FileIdentity {
  dev_t device = 0;
  ino_t inode = 0;

  // nullopt if the file does not exist. at() identifies a symbolic link itself, not its target.
  static std::optional<FileIdentity> of(int descriptor);
  static std::optional<FileIdentity> at(const std::string& path);

  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

}  // namespace cuvmm
