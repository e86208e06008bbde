// SPDX-License-Identifier: Apache-2.0
#include "share/runtime_socket.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <atomic>
#include <cstring>
#include <utility>

#include "share/process.hpp"

namespace cuvmm::share {
namespace {

constexpr const char* listening_at_socket = "listen at a socket";

// The address to bind or connect a socket to. The system limits a path to about a hundred
// characters; a longer one goes through a descriptor of its folder, which must stay open meanwhile.
struct Address {
  sockaddr_un name{};
  Fd folder;

  const sockaddr* generic() const { return reinterpret_cast<const sockaddr*>(&name); }
  static constexpr socklen_t size = sizeof(sockaddr_un);

  static Result<Address> of(const std::string& path) {
    Address address;
    address.name.sun_family = AF_UNIX;
    if (path.size() < sizeof address.name.sun_path) {
      std::memcpy(address.name.sun_path, path.data(), path.size());
      return address;
    }
    constexpr const char* doing = "use a socket";
    const std::size_t slash = path.rfind('/');
    if (slash == std::string::npos) return Error::invalid(doing, "its path is too long");
    address.folder = Fd{::open(path.substr(0, slash).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)};
    if (!address.folder.is_open()) return system_error(doing);
    const std::string way =
        "/proc/self/fd/" + std::to_string(address.folder.number()) + path.substr(slash);
    if (way.size() >= sizeof address.name.sun_path) {
      return Error::invalid(doing, "its name is too long");
    }
    std::memcpy(address.name.sun_path, way.data(), way.size());
    return address;
  }
};

Result<Fd> new_socket(SocketType type) {
  const int kind = type == SocketType::Stream ? SOCK_STREAM : SOCK_SEQPACKET;
  return opened_fd(::socket(AF_UNIX, kind | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), "make a socket");
}

// Checks that a socket can be bound in the folder: some file systems have no sockets, and some
// folders are not writable.
Result<void> takes_sockets(const std::string& folder) {
  static std::atomic<unsigned> tries{0};
  // Containers can share the folder and have processes with the same number.
  const std::string path = folder + "/trial-" + std::to_string(::getpid()) + "-" +
                           std::to_string(namespace_of_processes()) + "-" +
                           std::to_string(tries.fetch_add(1)) + being_made;
  const Address address = TRY(Address::of(path));
  const Fd socket = TRY(new_socket(SocketType::Packets));
  ::unlink(path.c_str());
  const bool is_bound = ::bind(socket.number(), address.generic(), Address::size) == 0;
  Result<void> bound = is_bound ? Result<void>{} : system_error("have a folder for sockets");
  ::unlink(path.c_str());
  return bound;
}

Result<std::string> first_usable(const std::vector<std::string>& folders) {
  Error why;
  for (const std::string& folder : folders) {
    const auto usable = [&]() -> Result<void> {
      TRY(PrivateFolder::open_or_make(folder));
      return takes_sockets(folder);
    }();
    if (usable.ok()) return folder;
    why = usable.error();
  }
  return why;
}

Error nobody_listens(int code) {
  return {.kind = ErrorKind::NotFound,
          .system_code = code,
          .doing = "connect to the socket",
          .subject = "no process listens there"};
}

Error somebody_listens() {
  return {.kind = ErrorKind::AlreadyExists,
          .doing = listening_at_socket,
          .subject = "another process listens there"};
}

// A path that is wrong must not cost anyone a file.
Result<void> refuse_other_files(const std::string& path, const char* subject) {
  struct stat facts {};
  if (::lstat(path.c_str(), &facts) != 0 || S_ISSOCK(facts.st_mode)) return {};
  return Error{.kind = ErrorKind::AlreadyExists, .doing = listening_at_socket, .subject = subject};
}

// Other programs listen without taking our lock; only connecting shows that they do.
Result<void> refuse_living_socket(const std::string& path) {
  const auto listens = connect_to(path, Deadline{});
  if (listens.ok()) return somebody_listens();
  Error error = listens.error();
  if (error.kind == ErrorKind::NotFound) return {};
  const bool is_living = error.kind == ErrorKind::TimedOut || error.system_code == EPROTOTYPE;
  if (is_living) return somebody_listens();
  error.doing = listening_at_socket;
  return error;
}

// The kernel releases the lock when its owner ends, however it ends.
Result<Fd> lock_of(const std::string& path) {
  Fd lock = TRY(opened_fd(::open((path + ".lock").c_str(),
                                 O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR),
                          listening_at_socket));
  if (::flock(lock.number(), LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno != EWOULDBLOCK) return system_error(listening_at_socket);
  return somebody_listens();
}

// Gives the socket its final name, unless a living process has it. Removes a dead process's socket.
Result<void> name_it(const std::string& fresh, const std::string& path) {
  for (int tries = 0; tries < 2; ++tries) {
    if (::link(fresh.c_str(), path.c_str()) == 0) {
      ::unlink(fresh.c_str());
      return {};
    }
    if (errno != EEXIST && ::access(path.c_str(), F_OK) != 0) {
      // A file system without hard links: rename() may overwrite a socket that another process
      // creates at this moment.
      if (::rename(fresh.c_str(), path.c_str()) != 0) return system_error(listening_at_socket);
      return {};
    }
    const auto listens = connect_to(path, Deadline{});
    if (listens.ok() || listens.error().kind != ErrorKind::NotFound) break;
    if (listens.error().system_code == ECONNREFUSED) ::unlink(path.c_str());
  }
  return somebody_listens();
}

}  // namespace

std::vector<std::string> folders_to_search() {
  std::vector<std::string> folders = usual_folders();
  for (std::string& folder : fresh_folders()) folders.push_back(std::move(folder));
  return folders;
}

Result<std::string> private_folder() {
  auto usual = first_usable(usual_folders());
  if (usual.ok()) return usual;
  auto of_an_earlier_process = first_usable(fresh_folders());
  if (of_an_earlier_process.ok()) return of_an_earlier_process;
  for (const char* const shared : shared_folders) {
    auto fresh = make_fresh_folder(shared);
    if (!fresh.ok()) continue;
    if (takes_sockets(*fresh).ok()) return fresh;
    ::rmdir(fresh->c_str());
  }
  return usual.error();
}

Result<void> in_any_folder(const std::string& name,
                           const std::function<Result<void>(const std::string& path)>& attempt) {
  Error why = nobody_listens(0);
  for (const std::string& path : folders_to_search()) {
    const auto folder = PrivateFolder::open(path);
    if (!folder.ok() && folder.error().kind == ErrorKind::InvalidArgument) continue;
    const auto tried = folder.ok() ? attempt(folder->path_of(name)) : Result<void>{folder.error()};
    if (tried.ok()) return {};
    if (why.kind == ErrorKind::NotFound) why = tried.error();
  }
  return why;
}

Result<ListeningSocket> ListeningSocket::open(const std::string& path, const Settings& settings,
                                              const std::function<Result<void>()>& prepare) {
  const std::string fresh = path + being_made;
  TRY(refuse_other_files(path, "a file that is not a socket is there"));
  TRY(refuse_other_files(fresh, "with .new appended it names a file that is not a socket"));
  ListeningSocket listening;
  if (settings.replace == Replace::Stale) {
    listening.lock_ = ForkClosedFd{TRY(lock_of(path))};
    TRY(refuse_living_socket(path));
    TRY(refuse_living_socket(fresh));
  }
  TRY(prepare());
  listening.socket_ = ForkClosedFd{TRY(new_socket(settings.type))};
  // Binds under a temporary name and renames once it listens, so that any process that finds the
  // socket can connect.
  const Address address = TRY(Address::of(fresh));
  ::unlink(fresh.c_str());
  const int socket = listening.socket_.number();
  if (::bind(socket, address.generic(), Address::size) != 0) {
    return system_error(listening_at_socket);
  }
  const auto file = FileIdentity::at(fresh);
  const Result<void> named = [&]() -> Result<void> {
    if (!file || ::chmod(fresh.c_str(), settings.mode) != 0 || ::listen(socket, SOMAXCONN) != 0) {
      return system_error(listening_at_socket);
    }
    if (settings.replace == Replace::Nothing) return name_it(fresh, path);
    // The lock's holder replaces an existing file atomically.
    if (::rename(fresh.c_str(), path.c_str()) != 0) return system_error(listening_at_socket);
    return {};
  }();
  if (!named.ok()) {
    ::unlink(fresh.c_str());
    return named.error();
  }
  listening.file_ = *file;
  listening.path_ = path;
  listening.owner_ = ::getpid();
  return listening;
}

ListeningSocket::ListeningSocket(ListeningSocket&& other) noexcept
    : path_(std::exchange(other.path_, {})),
      file_(other.file_),
      owner_(other.owner_),
      lock_(std::move(other.lock_)),
      socket_(std::move(other.socket_)) {}

ListeningSocket& ListeningSocket::operator=(ListeningSocket&& other) noexcept {
  if (this == &other) return *this;
  close();
  path_ = std::exchange(other.path_, {});
  file_ = other.file_;
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

bool ListeningSocket::has_file() const {
  return FileIdentity::at(path_) == file_;
}

void ListeningSocket::remove_file() const {
  if (is_of_this_process() && has_file()) ::unlink(path_.c_str());
}

void ListeningSocket::refresh_file() const {
  if (is_of_this_process()) ::utimensat(AT_FDCWD, path_.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
}

// The lock file stays: removing it could remove one that another process has just locked.
void ListeningSocket::close() {
  remove_file();
  if (is_of_this_process() && lock_.is_open()) {
    ::flock(lock_.number(), LOCK_UN);  // explicitly, since others may have it open
  }
  path_.clear();
  socket_.close();
  lock_.close();
}

Result<Fd> connect_to(const std::string& path, Deadline until, SocketType type) {
  constexpr const char* doing = "connect to the socket";
  const auto address = Address::of(path);
  if (!address.ok()) {
    if (address.error().system_code != ENOENT && address.error().system_code != ENOTDIR) {
      return address.error();
    }
    return nobody_listens(address.error().system_code);
  }
  for (;;) {
    Fd socket = TRY(new_socket(type));
    if (::connect(socket.number(), address->generic(), Address::size) == 0) return socket;
    if (errno == ENOENT || errno == ECONNREFUSED || errno == ENOTDIR) {
      return nobody_listens(errno);
    }
    if (errno != EINTR && errno != EAGAIN) return system_error(doing);
    if (until.is_over()) return Error{.kind = ErrorKind::TimedOut, .doing = doing};
    // The backlog is full, and there is nothing to poll for.
    ::poll(nullptr, 0, 1);
  }
}

std::vector<std::string> sockets_in(const PrivateFolder& folder, const std::string& prefix) {
  std::vector<std::string> names = folder.names(prefix);
  std::erase_if(names, [&](const std::string& name) {
    return name.ends_with(being_made) || !folder.owns(name, S_IFSOCK);
  });
  return names;
}

void remove_stale_sockets(const PrivateFolder& folder, const std::string& prefix) {
  for (const std::string& name : sockets_in(folder, prefix)) {
    const auto listens = connect_to(folder.open_path_of(name), Deadline{});
    const bool refused = !listens.ok() && listens.error().system_code == ECONNREFUSED;
    if (refused) folder.remove(name);
  }
}

}  // namespace cuvmm::share
