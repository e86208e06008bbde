// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace cuvmm::test {

// A folder of this test program alone, for files that may outlive the test that made them. It is
// removed when the program ends, but not by its forked children.
inline const std::filesystem::path& test_folder() {
  struct Folder {
    Folder() { std::filesystem::create_directories(path); }
    ~Folder() {
      std::error_code ignored;
      if (owner == ::getpid()) std::filesystem::remove_all(path, ignored);
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;

    const pid_t owner = ::getpid();
    const std::filesystem::path path =
        std::filesystem::temp_directory_path() / ("cuvmm-tests-" + std::to_string(owner));
  };
  static const Folder folder;
  return folder.path;
}

}  // namespace cuvmm::test
