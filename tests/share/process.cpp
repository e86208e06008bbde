// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "share/process.hpp"
#include "support/child.hpp"

namespace cuvmm::test {
namespace {

bool has_content(const std::string& file) {
  std::ifstream stream{file};
  return stream.peek() != std::ifstream::traits_type::eof();
}

bool main_thread_has_ended(pid_t process) {
  return !has_content("/proc/" + std::to_string(process) + "/maps");
}

CHILD_ROLE(runs_on_without_its_main_thread) {
  pthread_t thread{};
  const auto sleep = [](void*) -> void* {
    for (;;) ::pause();
  };
  ASSERT_EQ(::pthread_create(&thread, nullptr, sleep, nullptr), 0);
  link.signal();
  ::syscall(SYS_exit, 0);  // pthread_exit() would unwind through the role
}

TEST(ProcessOf, AnEndedMainThreadRunsOnInItsOtherThreads) {
  Child program{"runs_on_without_its_main_thread"};
  const pid_t child = program.pid();
  program.link().wait_for_signal();
  const std::uint64_t start = share::state_of(child).start_ticks;
  for (int ms = 0; ms < 20'000 && !main_thread_has_ended(child); ++ms) ::usleep(1000);

  EXPECT_TRUE(share::state_of(child).runs);
  EXPECT_EQ(share::state_of(child).start_ticks, start);
  EXPECT_TRUE(has_content(share::proc_folder_of(child) + "/maps"));

  ::kill(child, SIGKILL);
  siginfo_t ended{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(share::state_of(child).runs) << "it is a zombie";
  EXPECT_EQ(program.wait(), 128 + SIGKILL);
  EXPECT_FALSE(share::state_of(child).runs);
  EXPECT_FALSE(has_content(share::proc_folder_of(child) + "/maps"));
}

}  // namespace
}  // namespace cuvmm::test
