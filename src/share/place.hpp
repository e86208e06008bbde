// SPDX-License-Identifier: Apache-2.0
// Where processes of one user find each other's sockets.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "share/system_error.hpp"

namespace cuvmm::share {

// Folders for this user alone, the best first: $XDG_RUNTIME_DIR/cuvmm, /tmp/cuvmm-UID. Two
// processes may differ in which they have, so who looks for a socket looks in both.
std::vector<std::string> private_folders();
// The first of them that can be had, made where it is missing. A folder that others may enter, or
// that is not ours, is refused.
Result<std::string> private_folder();

// A socket that listens at a path, and is gone with this: so is its file.
class ListeningSocket {
 public:
  enum class Replace : std::uint8_t {
    Stale,    // what a process that has ended left behind
    Nothing,  // nobody else uses the name
  };
  // Stale: AlreadyExists where a living process listens there.
  // `prepare` is what has to be done once the place is ours and before anybody can connect.
  static Result<ListeningSocket> open(
      const std::string& path, Replace replace,
      const std::function<Result<void>()>& prepare = [] { return Result<void>{}; });

  ListeningSocket(ListeningSocket&& other) noexcept;
  ListeningSocket& operator=(ListeningSocket&& other) noexcept;
  ~ListeningSocket();

  const Fd& socket() const { return socket_; }
  const std::string& path() const { return path_; }
  // Not in a forked child, which has only a copy of this.
  bool is_of_this_process() const;

 private:
  ListeningSocket() = default;
  void close();

  std::string path_;  // empty: nothing to remove
  pid_t owner_ = 0;   // a forked child removes nothing
  Fd lock_;
  Fd socket_;
};

// NotFound where nobody listens there.
Result<Fd> connect_to(const std::string& path, Deadline until);

// Sockets `prefix…` in the folder at which nobody listens any more.
void remove_stale_sockets(const std::string& folder, const std::string& prefix);

}  // namespace cuvmm::share
