// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/checkpoint_lock.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>

#include <set>
#include <sstream>
#include <string>
#include <utility>

#include "share/process.hpp"
#include "share/runtime_socket.hpp"

namespace cuvmm::checkpoint {
namespace {

using share::Deadline;
using share::PrivateFolder;
using share::system_error;

constexpr const char* locking = "take a process off its devices";

// One file for all processes: the byte at offset PID is the lock for that process.
Result<Fd> file_of_locks(const std::string& folder_path) {
  const PrivateFolder folder = TRY(PrivateFolder::open(folder_path));
  Fd file{::open(folder.open_path_of("checkpoints.lock").c_str(),
                 O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR)};
  if (!file.is_open()) return system_error(locking);
  return file;
}

Result<void> lock_byte(const Fd& file, pid_t number, Deadline until) {
  struct flock byte {};
  byte.l_type = F_WRLCK;
  byte.l_whence = SEEK_SET;
  byte.l_start = number;
  byte.l_len = 1;
  while (::fcntl(file.number(), F_OFD_SETLK, &byte) != 0) {
    if (errno != EAGAIN && errno != EACCES && errno != EINTR) return system_error(locking);
    if (until.is_over()) {
      return Error{.kind = ErrorKind::TimedOut,
                   .doing = locking,
                   .subject = "another command does, or brings it back"};
    }
    ::poll(nullptr, 0, 5);
  }
  return {};
}

// Refuses links: one in the process's view of the file system would resolve in ours.
Fd open_without_links(const std::string& root, const std::string& path) {
  Fd at{::open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)};
  std::istringstream names{path};
  for (std::string name; at.is_open() && std::getline(names, name, '/');) {
    if (name.empty()) continue;
    at = Fd{::openat(at.number(), name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
  }
  return at;
}

}  // namespace

// Commands and services differ in their environments, and in their view of /tmp. All of them can
// reach the process's own view, so each takes the lock in the process's shared folders and in all
// of its own.
Result<std::vector<Fd>> lock_for_checkpoint(pid_t process, Deadline until) {
  const auto identity = share::identity_of(process);
  const pid_t number = identity ? identity->innermost : process;
  std::vector<std::string> folders = share::folders_to_search();
  folders.push_back(TRY(share::private_folder()));
  std::vector<Fd> of_process;
  for (const std::string shared : share::shared_folders) {
    of_process.push_back(open_without_links("/proc/" + std::to_string(process) + "/root", shared));
    if (!of_process.back().is_open()) continue;
    folders.push_back("/proc/self/fd/" + std::to_string(of_process.back().number()) + "/" +
                      share::usual_folder_name());
    static_cast<void>(PrivateFolder::open_or_make(folders.back()).ok());
  }
  std::vector<Fd> locks;
  std::set<std::pair<dev_t, ino_t>> locked;
  for (const std::string& folder : folders) {
    auto file = file_of_locks(folder);
    struct stat about {};
    if (!file.ok() || ::fstat(file->number(), &about) != 0) continue;  // there is no such folder
    if (!locked.emplace(about.st_dev, about.st_ino).second) continue;
    TRY(lock_byte(*file, number, until));
    locks.push_back(std::move(*file));
  }
  if (locks.empty()) return Error::invalid(locking, "no folder can hold a lock");
  return locks;
}

}  // namespace cuvmm::checkpoint
