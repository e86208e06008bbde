// SPDX-License-Identifier: Apache-2.0
#include "share/place.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "share/fork_closed.hpp"

namespace cuvmm::share {
namespace {

Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return Error::invalid("use a socket", "its path is too long");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

Result<Fd> new_socket() {
  Fd socket{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (!socket.is_open()) return system_error("make a socket");
  return socket;
}

const sockaddr* generic(const sockaddr_un& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

Result<void> make_private(const std::string& folder) {
  constexpr const char* doing = "have a folder for sockets";
  if (::mkdir(folder.c_str(), S_IRWXU) != 0 && errno != EEXIST) return system_error(doing);
  struct stat facts;
  if (::lstat(folder.c_str(), &facts) != 0) return system_error(doing);
  const bool others_may = (facts.st_mode & (S_IRWXG | S_IRWXO)) != 0;
  if (!S_ISDIR(facts.st_mode) || facts.st_uid != ::geteuid() || others_may) {
    return Error::invalid(doing, "there is one that is not this user's alone");
  }
  return {};
}

// Held as long as its owner lives, whatever ends it.
Result<Fd> lock_of(const std::string& path) {
  constexpr const char* doing = "listen at a socket";
  Fd lock{::open((path + ".lock").c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC,
                 S_IRUSR | S_IWUSR)};
  if (!lock.is_open()) return system_error(doing);
  if (::flock(lock.number(), LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno != EWOULDBLOCK) return system_error(doing);
  return Error{
      .kind = ErrorKind::AlreadyExists, .doing = doing, .subject = "another process listens there"};
}

}  // namespace

std::vector<std::string> private_folders() {
  std::vector<std::string> folders;
  const char* const given = ::secure_getenv("XDG_RUNTIME_DIR");
  if (given != nullptr && given[0] == '/') folders.push_back(std::string(given) + "/cuvmm");
  folders.push_back("/tmp/cuvmm-" + std::to_string(::geteuid()));
  return folders;
}

Result<std::string> private_folder() {
  const auto folders = private_folders();
  for (const std::string& folder : folders) {
    if (make_private(folder).ok()) return folder;
  }
  TRY(make_private(folders.back()));
  return folders.back();
}

Result<ListeningSocket> ListeningSocket::open(const std::string& path, Replace replace,
                                              const std::function<Result<void>()>& prepare) {
  constexpr const char* doing = "listen at a socket";
  ListeningSocket listening;
  if (replace == Replace::Stale) listening.lock_ = TRY(lock_of(path));
  TRY(prepare());
  listening.socket_ = TRY(new_socket());
  // Bound under another name and renamed once it listens, so that who finds it can connect, and
  // what a dead process left there is replaced in one step.
  const std::string fresh = path + ".new";
  const sockaddr_un address = TRY(address_of(fresh));
  ::unlink(fresh.c_str());
  const int socket = listening.socket_.number();
  if (::bind(socket, generic(address), sizeof address) != 0) return system_error(doing);
  if (::chmod(fresh.c_str(), S_IRUSR | S_IWUSR) != 0 || ::listen(socket, SOMAXCONN) != 0 ||
      ::rename(fresh.c_str(), path.c_str()) != 0) {
    const Error error = system_error(doing);
    ::unlink(fresh.c_str());
    return error;
  }
  listening.path_ = path;
  listening.owner_ = ::getpid();
  close_in_forked_children(socket);
  if (listening.lock_.is_open()) close_in_forked_children(listening.lock_.number());
  return listening;
}

ListeningSocket::ListeningSocket(ListeningSocket&& other) noexcept
    : path_(std::exchange(other.path_, {})),
      owner_(other.owner_),
      lock_(std::move(other.lock_)),
      socket_(std::move(other.socket_)) {}

ListeningSocket& ListeningSocket::operator=(ListeningSocket&& other) noexcept {
  if (this == &other) return *this;
  close();
  path_ = std::exchange(other.path_, {});
  owner_ = other.owner_;
  lock_ = std::move(other.lock_);
  socket_ = std::move(other.socket_);
  return *this;
}

ListeningSocket::~ListeningSocket() {
  close();
}

bool ListeningSocket::is_of_this_process() const {
  return !path_.empty() && owner_ == ::getpid();
}

// The file of the lock stays: who removes it may remove the one that somebody else has just locked.
void ListeningSocket::close() {
  if (is_of_this_process()) {
    ::unlink(path_.c_str());
    if (lock_.is_open()) ::flock(lock_.number(), LOCK_UN);  // whoever else has it open
  }
  path_.clear();
  forget_for_forked_children(socket_.number());
  forget_for_forked_children(lock_.number());
  socket_.close();
  lock_.close();
}

Result<Fd> connect_to(const std::string& path, Deadline until) {
  constexpr const char* doing = "connect to the exporter";
  const sockaddr_un address = TRY(address_of(path));
  for (;;) {
    Fd socket = TRY(new_socket());
    if (::connect(socket.number(), generic(address), sizeof address) == 0) return socket;
    if (errno == ENOENT || errno == ECONNREFUSED || errno == ENOTDIR) {
      return Error{.kind = ErrorKind::NotFound,
                   .system_code = errno,
                   .doing = doing,
                   .subject = "no process listens there"};
    }
    if (errno != EINTR && errno != EAGAIN) return system_error(doing);
    if (until.is_over()) return Error{.kind = ErrorKind::TimedOut, .doing = doing};
    // As many wait to be accepted as may: there is nothing to poll for.
    ::poll(nullptr, 0, 1);
  }
}

void remove_stale_sockets(const std::string& folder, const std::string& prefix) {
  DIR* const files = ::opendir(folder.c_str());
  if (files == nullptr) return;
  while (const dirent* entry = ::readdir(files)) {
    const std::string name = entry->d_name;
    if (name.compare(0, prefix.size(), prefix) != 0 || name.ends_with(".new")) continue;
    std::string path = folder;
    path.append("/").append(name);
    const auto listens = connect_to(path, Deadline{});
    const bool refused = !listens.ok() && listens.error().system_code == ECONNREFUSED;
    if (refused) ::unlink(path.c_str());
  }
  ::closedir(files);
}

}  // namespace cuvmm::share
