// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/checkpoint_lock.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>

#include <set>
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

// One file for all processes: each has the byte of its number.
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

}  // namespace

// Commands and services differ in their environments, and in what they see as /tmp. They have the
// process's own view in common, so each locks in the process's shared folders and in all of its
// own.
Result<std::vector<Fd>> lock_for_checkpoint(pid_t process, Deadline until) {
  const auto identity = share::identity_of(process);
  const pid_t number = identity ? identity->innermost : process;
  std::vector<std::string> folders = share::folders_to_search();
  folders.push_back(TRY(share::private_folder()));
  for (const char* const shared : share::shared_folders) {
    folders.push_back("/proc/" + std::to_string(process) + "/root" + shared + "/" +
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
