// SPDX-License-Identifier: Apache-2.0
// Descriptors whose numbers the program has given to files of its own.
#include "base/own_fd.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "base/fork_closed.hpp"
#include "support/refused_system_call.hpp"

namespace cuvmm::test {
namespace {

// All of them have the same device and inode, like exports of memory.
Fd given_eventfd() {
  return Fd{::eventfd(0, EFD_CLOEXEC)};
}
bool is_open(int number) {
  return ::fcntl(number, F_GETFD) >= 0;
}
// The mark is one of the highest signals, which qemu-user keeps for itself.
bool system_takes_the_mark() {
  return ::fcntl(given_eventfd().number(), F_SETSIG, SIGRTMAX - 3) == 0;
}

TEST(OwnFd, IsNoLongerOpenOnceItsNumberIsAnotherFileOfTheSameKind) {
  if (!system_takes_the_mark()) GTEST_SKIP() << "the system cannot mark open files";
  OwnFd own{given_eventfd()};
  const int number = own.number();
  ASSERT_TRUE(own.is_open());
  ASSERT_EQ(::dup2(given_eventfd().number(), number), number);
  EXPECT_FALSE(own.is_open());
  EXPECT_LT(own.number(), 0);
  own.close();
  EXPECT_TRUE(is_open(number)) << "it is the program's now";
  ::close(number);
}

TEST(OwnFd, StaysOpenWhereMarksCannotBeSetOrRead) {
  for (const unsigned refused : {F_SETSIG, F_GETSIG}) {
    bool can_refuse = false;
    bool stays_open = false;
    std::thread{[&] {
      can_refuse = refuse_fcntl(refused);
      stays_open = OwnFd{given_eventfd()}.is_open();
    }}.join();
    if (!can_refuse) GTEST_SKIP() << "no system call can be refused here";
    EXPECT_TRUE(stays_open) << refused;
  }
}

TEST(OwnFd, ClosesItsOwnFile) {
  OwnFd own{given_eventfd()};
  OwnFd moved{std::move(own)};
  const int number = moved.number();
  ASSERT_TRUE(is_open(number));
  moved.close();
  EXPECT_FALSE(is_open(number));
}

TEST(ForkClosedFd, AChildKeepsAnotherFileOfTheSameKind) {
  if (!system_takes_the_mark()) GTEST_SKIP() << "the system cannot mark open files";
  const ForkClosedFd closed_by_the_child{given_eventfd()};
  const ForkClosedFd replaced{given_eventfd()};
  const int number = replaced.number();
  ASSERT_EQ(::dup2(given_eventfd().number(), number), number);
  const pid_t child = ::fork();
  if (child == 0) {
    const bool is_right = is_open(number) && !is_open(closed_by_the_child.number());
    ::_exit(is_right ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ::close(number);
}

}  // namespace
}  // namespace cuvmm::test
