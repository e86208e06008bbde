// SPDX-License-Identifier: Apache-2.0
// What a paused process knows of having left its devices, which another process takes it off.
#include <gtest/gtest.h>

#include <string>

#include "controlled_process.hpp"
#include "support/kernels.hpp"
#include "support/memory.hpp"

namespace cuvmm::test {
namespace {

share::ControlAnswer told(ControlWhat what, const share::LeftMemory& left = {}) {
  ControlRequest words = request(what);
  words.left = left;
  const auto answer = share::tell(::getpid(), words, soon());
  EXPECT_TRUE(answer.ok());
  return answer.ok() ? *answer : share::ControlAnswer{};
}

template <class T>
T given(Result<T> result) {
  EXPECT_TRUE(result.ok());
  return std::move(*result);
}

TEST_F(ControlTest, OnlyAPausedProcessMayLeaveItsDevices) {
  auto& process = *new ControlledProcess{driver()};
  serve_commands(*process.control);
  const auto refused = told(ControlWhat::LeaveDevices);
  EXPECT_EQ(refused.outcome, ControlOutcome::Refused);
  EXPECT_EQ(refused.presence, share::Presence::OnDevices);
  EXPECT_NE(std::string{refused.text.data()}.find("not paused"), std::string::npos);
  process.end();
}

TEST_F(ControlTest, AProcessOffItsDevicesDoesNotResumeByItself) {
  auto& process = *new ControlledProcess{driver()};
  serve_commands(*process.control);
  const CUdeviceptr address = process.given_block();
  ASSERT_EQ(told(ControlWhat::Pause).outcome, ControlOutcome::Done);

  EXPECT_EQ(told(ControlWhat::LeaveDevices).presence, share::Presence::Leaving);
  EXPECT_FALSE(process.control->resume(Partly::No).ok());
  const share::LeftMemory left{0, 500};
  EXPECT_EQ(told(ControlWhat::HasLeft, left).presence, share::Presence::OffDevices);
  const auto refused = told(ControlWhat::Resume);
  EXPECT_EQ(refused.outcome, ControlOutcome::Refused);
  EXPECT_EQ(refused.is_paused, 1u);
  EXPECT_EQ(refused.presence, share::Presence::OffDevices);
  EXPECT_EQ(refused.left, left);

  EXPECT_EQ(told(ControlWhat::HasReturned).presence, share::Presence::OnDevices);
  EXPECT_EQ(told(ControlWhat::Resume).outcome, ControlOutcome::Done);
  expect_pattern(address, 4 * MiB, 3);
  EXPECT_EQ(process.memory->free(address), Answer{CUDA_SUCCESS});
  EXPECT_TRUE(comes_to_pass([&] { return process.control->ready_bytes() == 0; }));
  process.end();
}

// The driver would bring back a copy of it, apart from what the other process has.
TEST_F(ControlTest, AProcessThatSharesMemoryStaysOnItsDevices) {
  auto& process = *new ControlledProcess{driver()};
  serve_commands(*process.control);
  const auto chunk = [&] {
    return Chunk::create(driver(), 2 * MiB, Location::device(0), Export::Yes);
  };
  const auto expect_refused = [&] {
    const auto refused = told(ControlWhat::LeaveDevices);
    EXPECT_EQ(refused.outcome, ControlOutcome::Refused);
    EXPECT_EQ(refused.presence, share::Presence::OnDevices);
    EXPECT_NE(std::string{refused.text.data()}.find("shares memory"), std::string::npos);
  };
  ASSERT_EQ(told(ControlWhat::Pause).outcome, ControlOutcome::Done);
  const ChunkRef never_exported = ChunkRef::adopt(given(chunk()));
  {
    const ChunkRef exported = ChunkRef::adopt(given(chunk()));
    const Fd file = given(exported.export_fd());
    expect_refused();
  }
  {
    const Chunk theirs = given(chunk());
    const Fd file = given(theirs.export_fd());
    const ChunkRef imported =
        ChunkRef::adopt(given(Chunk::import_fd(driver(), file, theirs.size())));
    expect_refused();
  }
  {
    const auto name = process.chunks.imported(77);
    expect_refused();
    process.chunks.release(name);
  }
  EXPECT_EQ(told(ControlWhat::LeaveDevices).presence, share::Presence::Leaving);
  EXPECT_FALSE(never_exported.export_fd().ok()) << "while it is away";
  EXPECT_FALSE(never_exported.file_to_send().ok());
  told(ControlWhat::HasReturned);
  EXPECT_TRUE(never_exported.export_fd().ok());
  EXPECT_EQ(told(ControlWhat::Resume).outcome, ControlOutcome::Done);
  process.end();
}

// What left is known even if the process that took it off the devices died before the end.
TEST_F(ControlTest, ARepeatedDepartureKeepsWhatHadLeft) {
  auto& process = *new ControlledProcess{driver()};
  serve_commands(*process.control);
  ASSERT_EQ(told(ControlWhat::Pause).outcome, ControlOutcome::Done);
  const share::LeftMemory expected{510};
  EXPECT_EQ(told(ControlWhat::LeaveDevices, expected).left, expected);
  EXPECT_EQ(told(ControlWhat::LeaveDevices).left, expected);
  const share::LeftMemory left{500};
  told(ControlWhat::HasLeft, left);
  EXPECT_EQ(told(ControlWhat::LeaveDevices).left, left);
  EXPECT_EQ(told(ControlWhat::HasLeft).left, left);
  told(ControlWhat::HasReturned);
  EXPECT_EQ(told(ControlWhat::LeaveDevices).left, share::LeftMemory{});
  told(ControlWhat::HasReturned);
  EXPECT_EQ(told(ControlWhat::Resume).outcome, ControlOutcome::Done);
  process.end();
}

// A command that was overtaken by another must not leave a process off its devices that does not
// know of it.
TEST_F(ControlTest, AProcessThatWasBroughtBackHasNotLeft) {
  auto& process = *new ControlledProcess{driver()};
  serve_commands(*process.control);
  ASSERT_EQ(told(ControlWhat::Pause).outcome, ControlOutcome::Done);
  told(ControlWhat::LeaveDevices);
  told(ControlWhat::HasReturned);
  const auto late = told(ControlWhat::HasLeft);
  EXPECT_EQ(late.outcome, ControlOutcome::Refused);
  EXPECT_EQ(late.presence, share::Presence::OnDevices);
  EXPECT_EQ(told(ControlWhat::Resume).outcome, ControlOutcome::Done);
  process.end();
}

}  // namespace
}  // namespace cuvmm::test
