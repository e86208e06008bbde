// SPDX-License-Identifier: Apache-2.0
#include "cli/child.hpp"

#include <fmt/core.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>

#include "base/fd.hpp"
#include "cli/output.hpp"

namespace cuvmm::cli {
namespace {

std::atomic<pid_t> child{0};

// Timers that were set before us are ours alone.
bool is_of_timer(int signal) {
  return signal == SIGALRM || signal == SIGVTALRM || signal == SIGPROF;
}

// Stops this process unless the kernel ignores the signal, as in an orphaned process group.
void stop_by_default() {
  struct sigaction usual {};
  struct sigaction ours {};
  usual.sa_handler = SIG_DFL;
  sigaction(SIGTSTP, &usual, &ours);
  sigset_t only;
  sigset_t before;
  sigemptyset(&only);
  sigaddset(&only, SIGTSTP);
  sigprocmask(SIG_UNBLOCK, &only, &before);
  raise(SIGTSTP);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  sigaction(SIGTSTP, &ours, nullptr);
}

// Signals from a terminal reach the child directly, since it is in our process group. Signals sent
// only to us are handed on. Nothing tells these from signals to the whole group, which the child
// gets twice.
void hand_on(int signal, siginfo_t* what, void*) {
  const int before = errno;
  const pid_t whom = child.load();
  if (whom > 0 && what->si_code == SI_QUEUE) {
    ::syscall(SYS_rt_sigqueueinfo, whom, signal, what);  // with its value
  } else if (whom > 0 && (what->si_code <= 0 || is_of_timer(signal))) {
    kill(whom, signal);
  }
  if (signal == SIGTSTP) stop_by_default();
  errno = before;
}

// All signals that can be caught and mean something to a program, except those about our child and
// those that say that we ourselves have failed.
template <class Act>
void for_each_handed_on(Act act) {
  for (const int signal :
       {SIGHUP, SIGINT, SIGQUIT, SIGABRT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGTSTP, SIGCONT,
        SIGWINCH, SIGPIPE, SIGURG, SIGIO, SIGPWR, SIGVTALRM, SIGPROF, SIGXCPU, SIGXFSZ}) {
    act(signal);
  }
  for (int signal = SIGRTMIN; signal <= SIGRTMAX; ++signal) act(signal);
}

// Hands signals on to the child while one lives.
class HandingOn {
 public:
  HandingOn() {
    struct sigaction action {};
    action.sa_sigaction = &hand_on;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    sigfillset(&action.sa_mask);
    for_each_handed_on([&](int signal) { sigaction(signal, &action, &before_[signal]); });
  }
  ~HandingOn() {
    for_each_handed_on([&](int signal) { sigaction(signal, &before_[signal], nullptr); });
  }
  HandingOn(const HandingOn&) = delete;
  HandingOn& operator=(const HandingOn&) = delete;

 private:
  struct sigaction before_[NSIG] {};
};

// Returns when the child has ended, or at once if the kernel has no pidfds.
void look_until_it_ends(pid_t process, const std::function<void(pid_t)>& look) {
  constexpr int between_looks_ms = 2000;
  look(process);
  const Fd end{static_cast<int>(::syscall(SYS_pidfd_open, process, 0))};
  pollfd ended{.fd = end.number(), .events = POLLIN, .revents = 0};
  while (end.is_open()) {
    const int count = ::poll(&ended, 1, between_looks_ms);
    if (count > 0 || (count < 0 && errno != EINTR)) return;
    if (count == 0) look(process);
  }
}

}  // namespace

void become(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  const int why = errno;
  say(fmt::format("{}: {}", command[0], std::strerror(why)));
  _exit(why == ENOENT ? exit_not_found : exit_not_executable);
}

void end_by_signal(int signal) {
  prctl(PR_SET_DUMPABLE, 0);  // the program's own core dump is the one to look at
  std::signal(signal, SIG_DFL);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, signal);
  sigprocmask(SIG_UNBLOCK, &only, nullptr);
  raise(signal);
  _exit(128 + signal);
}

ChildEnd run_part(const std::vector<std::string>& command) {
  const ChildEnd end = run_child(command);
  for (const int told : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    if (end.signal == told) end_by_signal(told);
  }
  return end;
}

void end_with_parent(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) raise(SIGKILL);  // it has ended already
}

ChildEnd run_child(const std::vector<std::string>& command,
                   const std::function<void(pid_t)>& look) {
  // Block signals until both processes know which one is the child.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, &before);
  // If we inherited an ignored SIGCHLD, the kernel would discard the child's status.
  struct sigaction usual {};
  struct sigaction inherited {};
  usual.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &usual, &inherited);
  const pid_t here = getpid();
  const pid_t started = fork();
  if (started < 0) {
    const int why = errno;
    sigprocmask(SIG_SETMASK, &before, nullptr);
    say(fmt::format("a process cannot be started: {}", std::strerror(why)));
    return {.status = exit_ours};
  }
  if (started == 0) {
    end_with_parent(here);  // who kills us means the program
    sigaction(SIGCHLD, &inherited, nullptr);
    sigprocmask(SIG_SETMASK, &before, nullptr);
    become(command);
  }
  child = started;
  std::optional<HandingOn> handing_on{std::in_place};
  sigprocmask(SIG_SETMASK, &before, nullptr);

  if (look) look_until_it_ends(started, look);
  // Its number stays its own until it is reaped, so no signal reaches another process.
  siginfo_t ended{};
  while (waitid(P_PID, static_cast<id_t>(started), &ended, WEXITED | WNOWAIT) < 0) {
    if (errno != EINTR) return {.status = exit_ours};
  }
  child = 0;
  handing_on.reset();
  int status = 0;
  while (waitpid(started, &status, 0) < 0) {
    if (errno != EINTR) return {.status = exit_ours};
  }
  if (!WIFSIGNALED(status)) return {.status = WEXITSTATUS(status)};
  return {.status = 128 + WTERMSIG(status), .signal = WTERMSIG(status)};
}

}  // namespace cuvmm::cli
