// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>

#include "base/fd.hpp"
#include "base/result.hpp"
#include "daemon/config.hpp"

namespace cuvmm::daemon {

// The process at the other end of a connection, as the kernel reports it.
struct Peer {
  pid_t process = 0;  // 0: in another PID namespace
  uid_t user = 0;
  gid_t users_group = 0;
  std::string cgroup;  // empty if unknown
  std::string group;   // of its job, by its cgroup; empty if that names none
  Fd pidfd;            // readable once the process has ended; closed if unavailable
};

Result<Peer> identify(const Fd& connection);

// Whether the peer meets all criteria of the rule. `name` is the peer's own choice.
bool fits(const ClientRule& rule, const Peer& peer, const std::string& name);

}  // namespace cuvmm::daemon
