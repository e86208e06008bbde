// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>

#include "base/fd.hpp"
#include "base/result.hpp"
#include "daemon/config.hpp"

namespace cuvmm::daemon {

// Who is at the other end of a connection, as the system says.
struct Peer {
  pid_t process = 0;  // 0: of another namespace
  uid_t user = 0;
  std::string cgroup;  // empty where it cannot be told
  Fd pidfd;            // readable once the process has ended; closed where there is none
};

Result<Peer> identify(const Fd& connection);

// Whether all that the rule names fits; `name` is what the peer calls itself.
bool fits(const ClientRule& rule, const Peer& peer, const std::string& name);

}  // namespace cuvmm::daemon
