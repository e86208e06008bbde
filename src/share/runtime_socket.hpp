// SPDX-License-Identifier: Apache-2.0
// Where processes of one user find each other's sockets.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "share/fork_closed.hpp"
#include "share/private_folder.hpp"
#include "share/system_error.hpp"

namespace cuvmm::share {

// The first folder that takes sockets: a usual one, made if it is missing, or a fresh one if others
// have taken the usual names.
Result<std::string> private_folder();
// The usual folders and the fresh ones. Two processes may have chosen differently, so a search
// covers all of them.
std::vector<std::string> folders_to_search();

// Tries that name in each folder until one succeeds. Else the first error other than NotFound.
// Folders that are not this user's alone are left out.
Result<void> in_any_folder(const std::string& name,
                           const std::function<Result<void>(const std::string& path)>& attempt);

// A socket that listens at a path, and is gone with this: so is its file.
class ListeningSocket {
 public:
  enum class Replace : std::uint8_t {
    Stale,    // what a process that has ended left behind, of a name that many may want: by a lock
    Nothing,  // nobody else has use for the name, so there is no lock beside it
  };
  // AlreadyExists where a living process listens there.
  // `prepare` is what has to be done once the place is ours and before anybody can connect.
  static Result<ListeningSocket> open(
      const std::string& path, Replace replace,
      const std::function<Result<void>()>& prepare = [] { return Result<void>{}; });

  ListeningSocket(ListeningSocket&& other) noexcept;
  ListeningSocket& operator=(ListeningSocket&& other) noexcept;
  ~ListeningSocket();

  // Closed, where the program has closed it.
  const Fd& socket() const { return socket_.file(); }
  const std::string& path() const { return path_; }
  // Not in a forked child, which has only a copy of this.
  bool is_of_this_process() const;
  // Takes the file away, unless it is another one by now. Not in a forked child.
  void remove_file() const;
  // Makes it look new, now and then: what cleans up /tmp takes old files away, sockets in use too.
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

// NotFound where nobody listens there.
Result<Fd> connect_to(const std::string& path, Deadline until);

// Names `prefix…` of sockets in the folder that are ready to be connected to.
std::vector<std::string> sockets_in(const PrivateFolder& folder, const std::string& prefix);
// Removes those at which nobody listens any more.
void remove_stale_sockets(const PrivateFolder& folder, const std::string& prefix);

}  // namespace cuvmm::share
