// SPDX-License-Identifier: Apache-2.0
// What a process makes on first use: objects, answers and pthread keys.
#include "base/made_once.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/thread_key.hpp"

namespace cuvmm::test {
namespace {

constexpr int many_threads = 8;

// Calls `work` in many threads, which begin at the same time.
void in_many_threads(const std::function<void()>& work) {
  std::atomic<int> waiting{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < many_threads; ++i) {
    threads.emplace_back([&] {
      ++waiting;
      while (waiting < many_threads) std::this_thread::yield();
      work();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Counts those that exist.
struct Counted {
  explicit Counted(std::atomic<int>& count) : number(count) { ++number; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  ~Counted() { --number; }
  std::atomic<int>& number;
};

static_assert(std::is_trivially_destructible_v<MadeOnce<std::vector<int>>>, "or it needs a guard");

TEST(MadeOnce, IsMadeOnFirstUse) {
  static constinit MadeOnce<std::vector<int>> once;
  EXPECT_EQ(once.get_if_made(), nullptr);
  once.get().push_back(7);
  ASSERT_EQ(once.get().size(), 1u);
  EXPECT_EQ(once.get_if_made(), &once.get());
}

TEST(MadeOnce, KeepsWhatTheFirstUseMakes) {
  static constinit MadeOnce<const int> once;
  EXPECT_EQ(once.get([] { return 3; }), 3);
  EXPECT_EQ(once.get([] { return 4; }), 3);
}

TEST(MadeOnce, ThreadsThatComeTogetherGetOneObject) {
  static constinit MadeOnce<Counted> once;
  static std::atomic<int> number{0};
  std::atomic<int> making{0};
  std::atomic<const Counted*> seen{nullptr};
  in_many_threads([&] {
    const Counted& mine = once.get([&] {
      ++making;
      while (making < many_threads) std::this_thread::yield();  // so that each of them makes one
      return Counted{number};
    });
    const Counted* others = nullptr;
    if (!seen.compare_exchange_strong(others, &mine)) {
      EXPECT_EQ(others, &mine);
    }
  });
  EXPECT_EQ(making, many_threads);
  EXPECT_EQ(number, 1);
}

TEST(MadeOnce, AChildForkedMeanwhileMakesItsOwn) {
  static constinit MadeOnce<int> once;
  std::atomic<bool> is_making{false};
  std::atomic<bool> may_end{false};
  std::thread maker{[&] {
    once.get([&] {
      is_making = true;
      while (!may_end) std::this_thread::yield();
      return 1;
    });
  }};
  while (!is_making) std::this_thread::yield();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    ::_exit(once.get([] { return 2; }) == 2 ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  may_end = true;
  maker.join();
  EXPECT_EQ(once.get(), 1);
}

TEST(MadeOnce, IsMadeAgainOnceForgotten) {
  static constinit MadeOnce<int> once;
  static int& first = once.get([] { return 1; });  // static, so that it is not leaked
  once.forget_after_fork();
  EXPECT_EQ(once.get([] { return 2; }), 2);
  EXPECT_EQ(first, 1);
}

TEST(AskedOnce, KeepsItsFirstAnswer) {
  static constinit AskedOnce yes;
  static constinit AskedOnce no;
  EXPECT_TRUE(yes.get([] { return true; }));
  EXPECT_TRUE(yes.get([] { return false; }));
  EXPECT_FALSE(no.get([] { return false; }));
  EXPECT_FALSE(no.get([] { return true; }));
}

constinit std::atomic<int> ended{0};
void count_end(void* by) {
  ended += static_cast<int>(reinterpret_cast<std::intptr_t>(by));
}

TEST(ThreadKey, CallsTheFunctionAtTheEndOfEachThread) {
  static constinit ThreadKey key{&count_end};
  ended = 0;
  in_many_threads([] { EXPECT_TRUE(key.set(reinterpret_cast<void*>(std::intptr_t{10}))); });
  EXPECT_EQ(ended, 10 * many_threads);
}

TEST(ThreadKey, LeavesOtherThreadsAlone) {
  static constinit ThreadKey key{&count_end};
  ended = 0;
  std::thread{[] { key.clear(); }}.join();
  std::thread{[] {
    EXPECT_TRUE(key.set(reinterpret_cast<void*>(std::intptr_t{10})));
    key.clear();
  }}.join();
  std::thread{[] {}}.join();
  EXPECT_EQ(ended, 0);
}

}  // namespace
}  // namespace cuvmm::test
