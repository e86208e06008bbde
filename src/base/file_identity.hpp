// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

namespace cuvmm {

// Which file it is, whatever name or number it has by now.
struct FileIdentity {
  dev_t device = 0;
  ino_t inode = 0;

  // Nothing where there is none. Of a link itself, not of what it leads to.
  static std::optional<FileIdentity> of(int descriptor);
  static std::optional<FileIdentity> at(const std::string& path);

  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

}  // namespace cuvmm
