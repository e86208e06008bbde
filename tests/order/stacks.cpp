// SPDX-License-Identifier: Apache-2.0
#include "order/stacks.hpp"

#include <execinfo.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

namespace cuvmm::order {
namespace {

constexpr int dump_signal = SIGUSR2;

void print_own_stack(int /*signal*/) {
  std::array<void*, 64> frames{};
  const int count = ::backtrace(frames.data(), frames.size());
  static constexpr char heading[] = "-- thread\n";
  (void)!::write(STDERR_FILENO, heading, sizeof heading - 1);
  ::backtrace_symbols_fd(frames.data(), count, STDERR_FILENO);
}

}  // namespace

void print_stacks_of_all_threads() {
  std::array<void*, 1> warm_up{};
  ::backtrace(warm_up.data(), 1);  // loads the unwinder, which a signal handler must not do
  struct sigaction action {};
  action.sa_handler = print_own_stack;
  action.sa_flags = SA_RESTART;
  ::sigaction(dump_signal, &action, nullptr);
  for (const auto& task : std::filesystem::directory_iterator{"/proc/self/task"}) {
    const long thread = std::strtol(task.path().filename().c_str(), nullptr, 10);
    ::syscall(SYS_tgkill, ::getpid(), thread, dump_signal);
    std::this_thread::sleep_for(std::chrono::milliseconds{100});  // one stack after the other
  }
}

}  // namespace cuvmm::order
