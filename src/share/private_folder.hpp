// SPDX-License-Identifier: Apache-2.0
// Folders that hold the sockets and figures of one user.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/fd.hpp"
#include "base/result.hpp"

namespace cuvmm::share {

// A folder that this user owns and nobody else may enter. It is opened once, without following
// links, and then checked; reads and removals go through the open folder, so they stay in it even
// if somebody replaces the path.
class PrivateFolder {
 public:
  // NotFound if there is none. InvalidArgument if it is a link, belongs to another user, or others
  // may enter it.
  static Result<PrivateFolder> open(const std::string& path);
  static Result<PrivateFolder> open_or_make(const std::string& path);

  std::string path_of(const std::string& name) const { return path_ + "/" + name; }
  // A path through the open folder, valid as long as this object. The plain path if /proc is not
  // accessible (after setuid(), say).
  std::string open_path_of(const std::string& name) const;

  std::vector<std::string> names(const std::string& prefix) const;
  // Whether the file has that type (S_IFSOCK, S_IFREG) and belongs to this user.
  bool owns(const std::string& name, mode_t type) const;
  void remove(const std::string& name) const;

 private:
  PrivateFolder(std::string path, Fd folder) : path_(std::move(path)), folder_(std::move(folder)) {}

  std::string path_;
  Fd folder_;
};

// The suffix of a file that is still being created.
inline constexpr const char* being_made = ".new";

// cuvmm-UID.
std::string usual_folder_name();
// In order of preference: $XDG_RUNTIME_DIR/cuvmm, /tmp/cuvmm-UID, /dev/shm/cuvmm-UID.
std::vector<std::string> usual_folders();

// World-writable directories with the sticky bit: anyone may create folders in them, and nobody may
// remove or rename another user's.
inline constexpr const char* shared_folders[] = {"/tmp", "/dev/shm"};
// Creates a folder such as /tmp/cuvmm-UID-XXXXXX, whose name nobody can have taken in advance.
Result<std::string> make_fresh_folder(const std::string& shared);
// The existing fresh folders. Other users can create some too; PrivateFolder::open() rejects those.
std::vector<std::string> fresh_folders();

}  // namespace cuvmm::share
