// SPDX-License-Identifier: Apache-2.0
#include "daemon/deep_pause_helper.hpp"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "base/text.hpp"

namespace cuvmm::daemon {
namespace {

using checkpoint::CheckpointEnd;

constexpr const char* helper_word = "--deep-pause-helper";
constexpr int helper_socket = 3;
constexpr Duration for_calls_inside{10'000'000};  // as `cuvmm pause` waits by default
constexpr Duration for_an_answer{30'000'000};

// Drops the service's rights, since the helper loads libraries that the client's environment names,
// and forgets the service's runtime folder, so that it finds the client's files.
bool become(uid_t user, gid_t group) {
  ::unsetenv("XDG_RUNTIME_DIR");  // the service's own
  const passwd* const entry = ::getpwuid(user);
  const bool has_groups =
      entry != nullptr ? ::initgroups(entry->pw_name, group) == 0 : ::setgroups(0, nullptr) == 0;
  return has_groups && ::setresgid(group, group, group) == 0 && ::setresuid(user, user, user) == 0;
}

std::uint64_t sum_of(const checkpoint::CheckpointTimes& times) {
  return times.lock_us + times.checkpoint_us + times.restore_us + times.unlock_us;
}

HelperReport take_off(pid_t process, const checkpoint::AskProcess& ask) {
  checkpoint::Libraries libraries{process, checkpoint::Libraries::For::Pause};
  const auto outcome = checkpoint::take_off_devices(libraries, process, for_calls_inside, ask);
  HelperReport report{.end = outcome.end, .took_us = sum_of(outcome.times), .left = outcome.left};
  report.say(outcome.why);
  return report;
}

HelperReport bring_back(pid_t process, const checkpoint::AskProcess& ask) {
  const auto outcome = checkpoint::return_to_devices(process, ask);
  HelperReport report{.end = outcome.end};
  if (outcome.times) report.took_us = sum_of(*outcome.times);
  report.say(outcome.why);
  return report;
}

}  // namespace

void HelperReport::say(const std::string& words) {
  const std::size_t length = std::min(words.size(), why.size() - 1);
  std::memcpy(why.data(), words.data(), length);
  why[length] = '\0';
}

Result<RunningHelper> start_helper(DeepPauseWay way, const Peer& client) {
  constexpr const char* starting = "start a helper for a deep pause";
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return share::system_error(starting);
  }
  RunningHelper helper{.socket = Fd{ends[0]}};
  const Fd its_socket{ends[1]};

  std::vector<std::string> words{"cuvmmd",
                                 helper_word,
                                 way == DeepPauseWay::Off ? "off" : "back",
                                 std::to_string(client.process),
                                 std::to_string(client.user),
                                 std::to_string(client.users_group)};
  std::vector<char*> arguments(words.size() + 1, nullptr);
  std::transform(words.begin(), words.end(), arguments.begin(),
                 [](std::string& word) { return word.data(); });

  // The service blocks the signals that it reads, so unblock them here. The helper gets a session
  // of its own, since signals from the service's terminal are not meant for it.
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_t actions;
  sigset_t none;
  ::sigemptyset(&none);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSID);
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, its_socket.number(), helper_socket);
  errno = ::posix_spawn(&helper.process, "/proc/self/exe", &actions, &attributes, arguments.data(),
                        environ);
  Result<void> started = errno == 0 ? Result<void>{} : share::system_error(starting);
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (!started.ok()) return started.error();
  return helper;
}

void run_as_helper(int count, char** words) {
  constexpr int word_count = 6;
  if (count != word_count || std::string_view{words[1]} != helper_word) return;
  Fd socket{helper_socket};
  ::fcntl(socket.number(), F_SETFD, FD_CLOEXEC);
  const auto process = read_integer(words[3]).value_or(0);
  const auto user = static_cast<uid_t>(read_integer(words[4]).value_or(0));
  const auto group = static_cast<gid_t>(read_integer(words[5]).value_or(0));
  HelperReport report;
  if (::geteuid() == 0 && user != 0 && !become(user, group)) {
    report.end = CheckpointEnd::OnDevices;
    report.say("its helper cannot act as the client's user");
  } else {
    const auto ask = [&](const share::ControlRequest& request) {
      return share::tell(socket, request, share::Deadline::after(for_an_answer));
    };
    const auto pid = static_cast<pid_t>(process);
    report = std::string_view{words[2]} == "off" ? take_off(pid, ask) : bring_back(pid, ask);
  }
  const bool is_sent =
      ::send(socket.number(), &report, sizeof report, MSG_NOSIGNAL) == ssize_t{sizeof report};
  ::_exit(is_sent ? 0 : 1);  // skip exit handlers: the driver needs no cleanup
}

}  // namespace cuvmm::daemon
