// SPDX-License-Identifier: Apache-2.0
// Where processes of one user find each other's sockets.
#pragma once

#include <sys/stat.h>

#include <functional>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "base/fork_closed.hpp"
#include "share/private_folder.hpp"
#include "share/system_error.hpp"

namespace cuvmm::share {

// The first folder that can hold sockets: a usual one, created if missing, or a fresh one if other
// users have taken the usual names.
Result<std::string> private_folder();
// The usual folders and the fresh ones. Two processes may have chosen differently, so a search
// covers all of them.
std::vector<std::string> folders_to_search();

// Tries that name in each folder until one attempt succeeds; otherwise returns the first error that
// is not NotFound. Skips folders that other users may access.
Result<void> in_any_folder(const std::string& name,
                           const std::function<Result<void>(const std::string& path)>& attempt);

enum class SocketType : std::uint8_t { Packets, Stream };

// A listening socket at a path. The destructor closes it and removes its file.
class ListeningSocket {
 public:
  enum class Replace : std::uint8_t {
    Stale,    // replace a dead process's socket at a well-known name; guarded by a lock file
    Nothing,  // the name is unique to this process, so there is no lock file
  };
  struct Settings {
    Replace replace = Replace::Nothing;
    SocketType type = SocketType::Packets;
    mode_t mode = S_IRUSR | S_IWUSR;
  };
  // AlreadyExists if a living process listens there, or if there is a file other than a socket.
  // `prepare` runs once the path is ours and before anyone can connect.
  static Result<ListeningSocket> open(
      const std::string& path, const Settings& settings,
      const std::function<Result<void>()>& prepare = [] { return Result<void>{}; });

  ListeningSocket(ListeningSocket&& other) noexcept;
  ListeningSocket& operator=(ListeningSocket&& other) noexcept;
  ~ListeningSocket();

  // A closed Fd if the program has closed it.
  const Fd& socket() const { return socket_.file(); }
  const std::string& path() const { return path_; }
  // False in a forked child, which has only a copy.
  bool is_of_this_process() const;
  // False if the file has been removed or replaced, as when the user's runtime folder goes.
  bool has_file() const;
  // Removes the file, unless it has been replaced. Does nothing in a forked child.
  void remove_file() const;
  // Updates the file's time. Call from time to time: cleaners of /tmp remove old files, even
  // sockets in use.
  void refresh_file() const;

 private:
  ListeningSocket() = default;
  void close();

  std::string path_;  // empty: nothing to remove
  FileIdentity file_;
  pid_t owner_ = 0;  // a forked child removes nothing
  ForkClosedFd lock_;
  ForkClosedFd socket_;
};

// NotFound if no process listens there.
Result<Fd> connect_to(const std::string& path, Deadline until,
                      SocketType type = SocketType::Packets);

// The names of sockets in the folder that begin with `prefix` and are ready for connections.
std::vector<std::string> sockets_in(const PrivateFolder& folder, const std::string& prefix);
// Removes the sockets at which no process listens any more.
void remove_stale_sockets(const PrivateFolder& folder, const std::string& prefix);

}  // namespace cuvmm::share
