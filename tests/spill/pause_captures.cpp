// SPDX-License-Identifier: Apache-2.0
// Pauses of programs that capture streams: a capture ends by a call of the program.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "paused_program.hpp"

namespace cuvmm::test {
namespace {

class PauseCaptures : public PauseTest {
 protected:
  static ProgramParts parts_of(Program& program) {
    return {.driver = program.driver,
            .memory = *program.memory,
            .calls = program.calls,
            .captures = &program.captures};
  }
};

// Captures one stream after another, nearly always one.
class CapturesOften {
 public:
  explicit CapturesOften(Program& program)
      : thread_{[this, &program] {
          while (!ends_) {
            {
              const CallBarrier::Pass call{program.calls};
              program.captures.began(origin_);
            }
            std::this_thread::sleep_for(std::chrono::milliseconds{20});
            {
              const CallBarrier::Pass call{program.calls};
              ++captures_;
              program.captures.ended(origin_);
            }
            std::this_thread::sleep_for(std::chrono::milliseconds{1});
          }
        }} {}
  ~CapturesOften() {
    ends_ = true;
    thread_.join();
  }
  CapturesOften(const CapturesOften&) = delete;
  CapturesOften& operator=(const CapturesOften&) = delete;
  int captures() const { return captures_; }

 private:
  const CaptureOrigin origin_{.handle = reinterpret_cast<CUstream>(0x1000)};
  std::atomic<bool> ends_{false};
  std::atomic<int> captures_{0};
  std::thread thread_;
};

TEST_F(PauseCaptures, AProgramThatCapturesOftenIsPausedBetweenCaptures) {
  Program program{driver(), {}};
  program.take_a_little_of_everything();
  Pauser pauser{parts_of(program), small_pieces};
  CapturesOften capturing{program};
  for (int i = 0; i < 5; ++i) {
    while (!program.captures.any()) std::this_thread::yield();
    ASSERT_DONE(pauser.pause(Duration{30'000'000}, Strict::No));
    EXPECT_FALSE(program.captures.any());
    EXPECT_GE(capturing.captures(), i + 1);
    ASSERT_DONE(pauser.resume(Partly::No));
  }
  program.expect_intact();
  program.free_all();
}

TEST_F(PauseCaptures, ACaptureThatDoesNotEndInTimeIsNamedAndHoldsNoCall) {
  Program program{driver(), {}};
  program.take_a_little_of_everything();
  Pauser pauser{parts_of(program), small_pieces};
  const CaptureOrigin origin{.handle = reinterpret_cast<CUstream>(0x1000)};
  program.captures.began(origin);
  int asked = 0;
  const auto calls_go_on = [&] {
    ++asked;
    EXPECT_FALSE(program.calls.is_shut());
    return true;
  };
  const auto refused = pauser.pause(Duration{100'000}, Strict::No, {.is_wanted = calls_go_on});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().text(),
            "pause: timed out (the capture of stream 0x1000 did not end in time)");
  EXPECT_GT(asked, 0);
  program.captures.ended(origin);
  ASSERT_DONE(pauser.pause(timeout, Strict::No));
  ASSERT_DONE(pauser.resume(Partly::No));
  program.expect_intact();
  program.free_all();
}

}  // namespace
}  // namespace cuvmm::test
