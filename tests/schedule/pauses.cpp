// SPDX-License-Identifier: Apache-2.0
// Pausing a program whose calls are scheduled: queued calls are issued first.
#include "engine/control.hpp"
#include "schedule/schedule_world.hpp"

namespace cuvmm::test {
namespace {

// The device waits for a call that the pause blocks.
TEST(PausedSchedule, CallsThatCannotBeIssuedInTimeEndThePause) {
  const Deadline deadline;
  const GivenContext context;
  const Kernels kernels;
  const Scheduled scheduled{Schedule::Priority};
  const GivenClient client{"client"};
  client.bind();
  const HookedStream waiting;
  const HookedStream other;
  const HostFlag value;
  ASSERT_CUDA(hooked().cuStreamWaitValue32(waiting, value.address(), 1, CU_STREAM_WAIT_VALUE_GEQ));
  for (int i = 0; i < 300; ++i) {
    ASSERT_CUDA(launch_hooked(kernels.fill, waiting, std::uint64_t{value.address()}, 2u, 1u));
  }
  Control& control = *Engine::get()->control();
  std::optional<Result<PauseReport>> paused;
  std::thread{[&] { paused = control.pause(Duration{200'000}, Strict::No); }}.join();
  ASSERT_FALSE(paused->ok());
  EXPECT_EQ(paused->error().kind, ErrorKind::TimedOut) << paused->error().text();
  EXPECT_FALSE(control.is_paused());
  ASSERT_CUDA(hooked().cuStreamWriteValue32(other, value.address(), 1, 0));
  ASSERT_CUDA(hooked().cuStreamSynchronize(waiting));
  EXPECT_EQ(value.get(), 2U);
}

}  // namespace
}  // namespace cuvmm::test
