// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <string>

namespace cuvmm::test {

// Finds a connection of this process to a socket whose path is wanted. Returns the number of this
// process's end, or -1.
template <class IsWanted>
int named_connection(IsWanted is_wanted) {
  for (int number = 3; number < 1024; ++number) {
    sockaddr_un peer{};
    socklen_t size = sizeof peer;
    const bool has_peer = ::getpeername(number, reinterpret_cast<sockaddr*>(&peer), &size) == 0;
    if (!has_peer || peer.sun_family != AF_UNIX) continue;
    if (size <= offsetof(sockaddr_un, sun_path)) continue;  // it has no path
    if (is_wanted(std::string{peer.sun_path})) return number;
  }
  return -1;
}

}  // namespace cuvmm::test
