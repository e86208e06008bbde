// SPDX-License-Identifier: Apache-2.0
// A fork in another thread finds no work half done, and exit functions are registered once.
#include "base/no_forks.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <thread>

#include "base/at_exit.hpp"

namespace cuvmm::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Forks a child that does this, and returns its exit status, or 128 plus the signal that ended it.
int status_of_child(const std::function<int()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    ::_exit(work());
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int seconds_to_get_one() {
  const auto began = steady_clock::now();
  const NoForks now;
  const auto took = steady_clock::now() - began;
  return static_cast<int>(std::chrono::duration_cast<std::chrono::seconds>(took).count());
}

// A thread that has a NoForks for this long, or until the Holder ends.
class Holder {
 public:
  explicit Holder(milliseconds longest) {
    thread_ = std::thread{[this, longest] {
      const NoForks meanwhile;
      const auto until = steady_clock::now() + longest;
      has_begun_ = true;
      while (!may_end_ && steady_clock::now() < until) {
        std::this_thread::sleep_for(std::chrono::microseconds{50});
      }
      has_ended_ = true;
    }};
    while (!has_begun_) std::this_thread::yield();
  }
  ~Holder() {
    may_end_ = true;
    thread_.join();
  }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;

  bool has_ended() const { return has_ended_; }

 private:
  std::atomic<bool> has_begun_{false};
  std::atomic<bool> may_end_{false};
  std::atomic<bool> has_ended_{false};
  std::thread thread_;
};

TEST(NoForks, AnotherThreadsForkWaits) {
  const Holder holder{milliseconds{100}};
  EXPECT_EQ(status_of_child([&] { return holder.has_ended() ? 0 : 1; }), 0);
}

TEST(NoForks, AChildCanHaveOne) {
  EXPECT_EQ(status_of_child(&seconds_to_get_one), 0);
  EXPECT_EQ(seconds_to_get_one(), 0);
}

TEST(NoForks, AForkWaitsOnlyForASecond) {
  const Holder holder{std::chrono::minutes{1}};
  EXPECT_EQ(status_of_child(&seconds_to_get_one), 0);
  EXPECT_FALSE(holder.has_ended());
}

TEST(NoForks, TheThreadItselfMayFork) {
  const auto began = steady_clock::now();
  {
    const NoForks meanwhile;
    EXPECT_EQ(status_of_child([] { return 0; }), 0);
  }
  EXPECT_EQ(seconds_to_get_one(), 0);
  EXPECT_LT(steady_clock::now() - began, milliseconds{900});
}

TEST(NoForks, OneInsideAnotherEndsNothing) {
  const NoForks outer;
  { const NoForks inner; }
  int seconds_of_another = 0;
  std::thread{[&] { seconds_of_another = seconds_to_get_one(); }}.join();
  EXPECT_GE(seconds_of_another, 1);
}

constinit AtExit says_so{[] { (void)!::write(STDERR_FILENO, "ran\n", 4); }};

TEST(AtExitDeathTest, RunsOnce) {
  EXPECT_EXIT(
      {
        says_so.ensure();
        says_so.ensure();
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "^ran\n$");
}

}  // namespace
}  // namespace cuvmm::test
