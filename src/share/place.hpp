// SPDX-License-Identifier: Apache-2.0
// Where processes of one user find each other's sockets.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "share/fork_closed.hpp"
#include "share/system_error.hpp"

namespace cuvmm::share {

// Folders for this user alone, the best first: $XDG_RUNTIME_DIR/cuvmm, /tmp/cuvmm-UID,
// /dev/shm/cuvmm-UID. Two processes may differ in which they have, so who looks for a socket looks
// in all of them.
std::vector<std::string> private_folders();
// The first of them that can be had and takes sockets, made where it is missing. A folder that
// others may enter, or that is not ours, is refused.
Result<std::string> private_folder();

inline std::string in_folder(const std::string& folder, const std::string& name) {
  return folder + "/" + name;
}

// What the attempt makes of that name in the first of the folders where it succeeds. Else what it
// said in the best one that had more to say than NotFound.
template <class Made, class Attempt>
Result<Made> in_any_folder(const std::string& name, const Attempt& attempt) {
  Error why{.kind = ErrorKind::NotFound,
            .doing = "connect to the exporter",
            .subject = "no process listens there"};
  for (const std::string& folder : private_folders()) {
    Result<Made> made = attempt(in_folder(folder, name));
    if (made.ok()) return made;
    if (why.kind == ErrorKind::NotFound) why = made.error();
  }
  return why;
}

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

// Names `prefix…` in the folder, of sockets and of other files.
std::vector<std::string> names_in(const std::string& folder, const std::string& prefix);
// Sockets `prefix…` in the folder at which nobody listens any more.
void remove_stale_sockets(const std::string& folder, const std::string& prefix);

}  // namespace cuvmm::share
