// SPDX-License-Identifier: Apache-2.0
#include "share/checkpoint_lock.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>

#include "share/process.hpp"
#include "share/runtime_socket.hpp"

namespace cuvmm::share {
namespace {

constexpr const char* locking = "take a process off its devices";

// One file for all processes: each has the byte of its number.
Result<Fd> file_of_locks() {
  const PrivateFolder folder = TRY(PrivateFolder::open(TRY(private_folder())));
  Fd file{::open(folder.open_path_of("checkpoints.lock").c_str(),
                 O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR)};
  if (!file.is_open()) return system_error(locking);
  return file;
}

}  // namespace

Result<Fd> lock_for_checkpoint(pid_t process, Deadline until) {
  Fd file = TRY(file_of_locks());
  const auto identity = identity_of(process);
  struct flock byte {};
  byte.l_type = F_WRLCK;
  byte.l_whence = SEEK_SET;
  byte.l_start = identity ? identity->innermost : process;
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
  return file;
}

}  // namespace cuvmm::share
