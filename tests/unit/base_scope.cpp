// SPDX-License-Identifier: Apache-2.0
// Objects that clean up after themselves: Undo and Fd.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <optional>
#include <type_traits>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "base/undo.hpp"

namespace cuvmm::test {
namespace {

bool is_open(int number) {
  return ::fcntl(number, F_GETFD) >= 0;
}
Fd opened() {
  return Fd{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
}

TEST(Undo, RunsAtTheEndOfTheScope) {
  int runs = 0;
  {
    Undo undo{[&] { ++runs; }};
    EXPECT_EQ(runs, 0);
  }
  EXPECT_EQ(runs, 1);
}

TEST(Undo, DoesNothingOnceKept) {
  int runs = 0;
  {
    Undo undo{[&] { ++runs; }};
    undo.keep();
  }
  EXPECT_EQ(runs, 0);
}

TEST(Undo, MovedRunsOnce) {
  int runs = 0;
  {
    Undo first{[&] { ++runs; }};
    Undo second{std::move(first)};
  }
  EXPECT_EQ(runs, 1);
  using Action = void (*)();
  static_assert(!std::is_copy_constructible_v<Undo<Action>>);
  static_assert(std::is_nothrow_move_constructible_v<Undo<Action>>);
}

TEST(Undo, RunsInReverse) {
  std::string order;
  {
    Undo first{[&] { order += "1"; }};
    Undo second{[&] { order += "2"; }};
  }
  EXPECT_EQ(order, "21");
}

TEST(Fd, ClosesItself) {
  std::optional<Fd> file{opened()};
  const int number = file->number();
  ASSERT_TRUE(is_open(number));
  file.reset();
  EXPECT_FALSE(is_open(number));
}

TEST(Fd, MovedIsClosedOnce) {
  Fd first = opened();
  const int number = first.number();
  Fd second{std::move(first)};
  EXPECT_FALSE(first.is_open());  // NOLINT(bugprone-use-after-move): that is the claim
  EXPECT_EQ(second.number(), number);
  Fd third = opened();
  const int replaced = third.number();
  third = std::move(second);
  EXPECT_FALSE(is_open(replaced));
  EXPECT_EQ(third.number(), number);
}

TEST(Fd, ReleasedStaysOpen) {
  int number;
  {
    Fd file = opened();
    number = file.release();
  }
  EXPECT_TRUE(is_open(number));
  ::close(number);
}

TEST(Fd, ClosingKeepsErrno) {
  errno = ENOENT;
  opened().close();
  { const Fd never{987654}; }
  EXPECT_EQ(errno, ENOENT);
}

TEST(Clock, NeverGoesBackAndCountsMicroseconds) {
  const auto us = now_us();
  const auto ns = now_ns();
  EXPECT_GE(ns / 1000, us);
  EXPECT_LT(ns / 1000 - us, 10'000'000u);
  EXPECT_GE(now_ns(), ns);
}

}  // namespace
}  // namespace cuvmm::test
