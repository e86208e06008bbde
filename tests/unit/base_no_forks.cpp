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

steady_clock::duration time_to_get_one() {
  const auto began = steady_clock::now();
  const NoForks now;
  return steady_clock::now() - began;
}

// Shorter than the second that a NoForks, or a fork, waits at most.
constexpr milliseconds at_once{900};

bool gets_one_at_once() {
  return time_to_get_one() < at_once;
}
bool child_gets_one_at_once() {
  return status_of_child([] { return gets_one_at_once() ? 0 : 1; }) == 0;
}

// A busy machine may hold up any one try for a second.
bool succeeds_in_five_tries(const std::function<bool()>& attempt) {
  for (int tries = 0; tries < 5; ++tries) {
    if (attempt()) return true;
  }
  return false;
}

// A thread that has a NoForks for this long, or until the Holder ends. The thread itself lives as
// long as the Holder: ThreadSanitizer reports a thread that has ended and is not joined as leaked,
// in a forked child too.
class Holder {
 public:
  explicit Holder(milliseconds longest) {
    thread_ = std::thread{[this, longest] {
      {
        const NoForks meanwhile;
        const auto until = steady_clock::now() + longest;
        has_begun_ = true;
        while (!may_end_ && steady_clock::now() < until) {
          std::this_thread::sleep_for(std::chrono::microseconds{50});
        }
        has_ended_ = true;
      }
      may_end_.wait(false);
    }};
    while (!has_begun_) std::this_thread::yield();
  }
  ~Holder() {
    may_end_ = true;
    may_end_.notify_one();
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
  EXPECT_TRUE(succeeds_in_five_tries(&child_gets_one_at_once));
  EXPECT_TRUE(succeeds_in_five_tries(&gets_one_at_once));
}

TEST(NoForks, AForkWaitsOnlyForASecond) {
  const Holder holder{std::chrono::minutes{1}};
  EXPECT_TRUE(succeeds_in_five_tries(&child_gets_one_at_once));
  EXPECT_FALSE(holder.has_ended());
}

TEST(NoForks, TheThreadItselfMayFork) {
  EXPECT_TRUE(succeeds_in_five_tries([] {
    const auto began = steady_clock::now();
    {
      const NoForks meanwhile;
      EXPECT_EQ(status_of_child([] { return 0; }), 0);
    }
    time_to_get_one();
    return steady_clock::now() - began < at_once;
  }));
}

TEST(NoForks, OneInsideAnotherEndsNothing) {
  const NoForks outer;
  { const NoForks inner; }
  steady_clock::duration time_of_another{};
  std::thread{[&] { time_of_another = time_to_get_one(); }}.join();
  EXPECT_GE(time_of_another, milliseconds{999}) << "a second, counted in whole microseconds";
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
