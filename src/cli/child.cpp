// SPDX-License-Identifier: Apache-2.0
#include "cli/child.hpp"

#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>

namespace cuvmm::cli {
namespace {

std::atomic<pid_t> child{0};

// What a terminal sends reaches the child by itself, since it is in our process group; what
// somebody sends to us alone is handed on.
void hand_on(int signal, siginfo_t* what, void*) {
  const pid_t whom = child.load();
  if (whom > 0 && what->si_code <= 0) kill(whom, signal);
}

// Everything that can be caught and means something to a program, but what concerns our own child.
template <class Act>
void for_each_handed_on(Act act) {
  for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGCONT,
                           SIGWINCH, SIGPIPE, SIGURG, SIGIO, SIGPWR, SIGVTALRM, SIGPROF}) {
    act(signal);
  }
  for (int signal = SIGRTMIN; signal <= SIGRTMAX; ++signal) act(signal);
}

[[noreturn]] void become(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  const int why = errno;
  fmt::print(stderr, "cuvmm: {}: {}\n", command[0], std::strerror(why));
  _exit(why == ENOENT ? exit_not_found : exit_not_executable);
}

}  // namespace

int run_child(const std::vector<std::string>& command) {
  // Held back until both sides know which process is the child.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, &before);
  const pid_t started = fork();
  if (started < 0) {
    const int why = errno;
    sigprocmask(SIG_SETMASK, &before, nullptr);
    fmt::print(stderr, "cuvmm: a process cannot be started: {}\n", std::strerror(why));
    return exit_ours;
  }
  if (started == 0) {
    sigprocmask(SIG_SETMASK, &before, nullptr);
    become(command);
  }
  child = started;
  struct sigaction action {};
  action.sa_sigaction = &hand_on;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigfillset(&action.sa_mask);
  for_each_handed_on([&](int signal) { sigaction(signal, &action, nullptr); });
  sigprocmask(SIG_SETMASK, &before, nullptr);

  int status = 0;
  while (waitpid(started, &status, 0) < 0) {
    if (errno != EINTR) return exit_ours;
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace cuvmm::cli
