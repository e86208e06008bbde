// SPDX-License-Identifier: Apache-2.0
#include "daemon/peer.hpp"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>

#include "node/job_group.hpp"

namespace cuvmm::daemon {
namespace {

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

// The pidfd of the peer itself, if the kernel supports that (Linux 6.5); otherwise, of the process
// that has its PID now.
Fd pidfd_of(const Fd& connection, pid_t process) {
  int pidfd = -1;
  socklen_t size = sizeof pidfd;
  if (::getsockopt(connection.number(), SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) == 0) {
    return Fd{pidfd};
  }
  if (process <= 0) return {};
  return Fd{static_cast<int>(::syscall(SYS_pidfd_open, process, 0))};
}

std::string cgroups_of(pid_t process) {
  std::ifstream file{"/proc/" + std::to_string(process) + "/cgroup"};
  std::string all;
  for (std::string line; std::getline(file, line);) (all += line) += '\n';
  return all;
}

// The cgroup v2 line, such as "0::/system.slice/train.service".
std::string cgroup_of(const std::string& all) {
  std::istringstream lines{all};
  std::string line;
  while (std::getline(lines, line)) {
    if (line.starts_with("0::")) return line.substr(3);
  }
  return {};
}

bool is_in(const std::string& cgroup, const std::string& above) {
  if (above == "/") return !cgroup.empty();
  if (!cgroup.starts_with(above)) return false;
  return cgroup.size() == above.size() || cgroup[above.size()] == '/';
}

}  // namespace

Result<Peer> identify(const Fd& connection) {
  ucred who{};
  socklen_t size = sizeof who;
  if (::getsockopt(connection.number(), SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) {
    return Error{
        .kind = ErrorKind::SystemFailed, .system_code = errno, .doing = "ask who has connected"};
  }
  Peer peer{.process = who.pid, .user = who.uid, .users_group = who.gid};
  peer.pidfd = pidfd_of(connection, who.pid);
  if (who.pid > 0) {
    const std::string cgroups = cgroups_of(who.pid);
    peer.cgroup = cgroup_of(cgroups);
    peer.group = node::group_of_cgroups(cgroups);
  }
  return peer;
}

bool fits(const ClientRule& rule, const Peer& peer, const std::string& name) {
  if (!rule.name.empty() && rule.name != name) return false;
  if (rule.user && *rule.user != peer.user) return false;
  return rule.cgroup.empty() || is_in(peer.cgroup, rule.cgroup);
}

}  // namespace cuvmm::daemon
