// SPDX-License-Identifier: Apache-2.0
// Pauses whose memory others use while they go on, and memory that returns ahead of the resume, as
// far as a lease has room for it.
#include <gtest/gtest.h>

#include "paused_program.hpp"
#include "support/fault_sweep.hpp"
#include "support/scale.hpp"

namespace cuvmm::test {
namespace {

// Leases nothing beyond what the test has added.
class NoMore final : public Lessor {
 public:
  void begin(LeasedBudget& budget, const Uuid&, Size) override {
    budget.lease_from(*this);
    budget.add_lease(GiB);
  }
  Extended extend(LeasedBudget&, Size) override { return Extended::No; }
  bool wait_for(LeasedBudget&, Size, std::uint64_t, std::uint64_t, const StillWanted&) override {
    return false;
  }
};

struct LeasedProgram {
  enum class Memory : std::uint8_t { Some, Little };
  explicit LeasedProgram(const Driver& driver, Memory takes = Memory::Some)
      : program(driver, settings(), small_ring) {
    if (takes == Memory::Some) program.take_some_of_everything();
    if (takes == Memory::Little) program.take_a_little_of_everything();
  }
  MemorySettings settings() {
    MemorySettings made;
    made.lessor = &lessor;
    return made;
  }
  LeasedBudget& lease() { return program.memory->devices().all().front()->budget(); }
  // Leaves `left` bytes of the lease.
  void pause(Size left) {
    ASSERT_DONE(program.pauser->pause(timeout, Strict::No));
    moved = program.pauser->paused_bytes();
    lease().take_surplus(unlimited);
    lease().add_lease(left);
  }

  NoMore lessor;
  Program program;
  Size moved = 0;
};

class PauseAhead : public PauseTest {};

TEST_F(PauseAhead, MemoryIsReportedAsSoonAsItIsReleased) {
  LeasedProgram leased{driver()};
  std::vector<Size> surpluses;
  const PauseWatch watch{.has_released = [&] { surpluses.push_back(leased.lease().surplus()); }};
  ASSERT_DONE(leased.program.pauser->pause(timeout, Strict::No, watch));
  ASSERT_GE(surpluses.size(), 2u) << "one a part of host memory";
  EXPECT_LT(surpluses.front(), surpluses.back());
  EXPECT_LE(surpluses.back(), leased.lease().surplus());
  ASSERT_DONE(leased.program.pauser->resume(Partly::No));
  leased.program.expect_to_go_on();
}

// The pause fails after others have taken what it had released.
TEST_F(PauseAhead, APauseThatCannotBeUndoneStaysOneAndLosesNothing) {
  LeasedProgram leased{driver()};
  int parts = 0;
  const PauseWatch watch{.is_wanted = [&] { return parts < 2; },
                         .has_released =
                             [&] {
                               ++parts;
                               leased.lease().take_surplus(unlimited);
                             },
                         .undo = Partly::No};
  EXPECT_FALSE(leased.program.pauser->pause(timeout, Strict::No, watch).ok());
  EXPECT_TRUE(leased.program.pauser->is_paused()) << "there is no room to undo it";
  EXPECT_TRUE(leased.program.calls.is_shut());
  EXPECT_FALSE(leased.program.pauser->is_left_paused()) << "its caller resumes it";
  leased.lease().add_lease(GiB);
  ASSERT_DONE(leased.program.pauser->resume(Partly::No));
  leased.program.expect_to_go_on();
}

TEST_F(PauseAhead, MemoryReturnsAsFarAsTheLeaseHasRoom) {
  for (const Size room : {Size{0}, 8 * MiB, 20 * MiB, GiB}) {
    SCOPED_TRACE(room / MiB);
    LeasedProgram leased{driver()};
    leased.pause(room);
    leased.program.pauser->return_ahead();
    EXPECT_TRUE(leased.program.pauser->is_paused());
    const Size back = leased.program.on_device();
    EXPECT_LE(back, room);
    EXPECT_EQ(back, leased.lease().committed_bytes());
    EXPECT_EQ(back == 0, room == 0);
    if (room == GiB) {
      EXPECT_EQ(back, leased.moved);
    }
    leased.lease().add_lease(GiB);
    const auto resumed = leased.program.pauser->resume(Partly::No);
    ASSERT_TRUE(resumed.ok()) << resumed.error().text();
    EXPECT_EQ(leased.program.on_device(), leased.moved);
    leased.program.expect_to_go_on();
  }
}

TEST_F(PauseAhead, MemoryReturnsInSeveralSteps) {
  LeasedProgram leased{driver()};
  leased.pause(0);
  for (Size step = 0; step < leased.moved + 16 * MiB; step += 16 * MiB) {
    leased.lease().add_lease(16 * MiB);
    leased.program.pauser->return_ahead();
  }
  EXPECT_EQ(leased.program.on_device(), leased.moved);
  const auto resumed = leased.program.pauser->resume(Partly::No);
  ASSERT_TRUE(resumed.ok()) << resumed.error().text();
  EXPECT_EQ(resumed->moved, leased.moved);
  EXPECT_NE(resumed->times.maps_us, 0u) << "the resume reports the time of all steps";
  leased.program.expect_to_go_on();
}

TEST_F(PauseAhead, WhatHasReturnedCanLeaveAgain) {
  LeasedProgram leased{driver()};
  leased.pause(20 * MiB);
  for (int round = 0; round < 3; ++round) {
    leased.program.pauser->return_ahead();
    EXPECT_NE(leased.program.on_device(), 0u);
    leased.program.pauser->leave_again();
    EXPECT_EQ(leased.program.on_device(), 0u);
    EXPECT_EQ(leased.lease().surplus(), 20 * MiB);
  }
  leased.lease().add_lease(GiB);
  ASSERT_DONE(leased.program.pauser->resume(Partly::No));
  leased.program.expect_to_go_on();
}

TEST_F(PauseAhead, NothingHappensUnlessItIsPaused) {
  LeasedProgram leased{driver()};
  leased.program.pauser->return_ahead();
  leased.program.pauser->leave_again();
  leased.program.expect_to_go_on();
}

// Each driver call of a return ahead fails, and then each call of the resume that follows.
TEST_F(PauseAhead, LosesNothingWhateverTheDriverRefuses) {
  for (const CUresult fault : {CUDA_ERROR_UNKNOWN, CUDA_ERROR_OUT_OF_MEMORY}) {
    bool untouched = false;
    for (std::uint64_t number = sweep_start(); !untouched && number < most_calls_of_a_scenario;
         number += sweep_step()) {
      SCOPED_TRACE("driver call " + std::to_string(number) + ": " + name_of(fault));
      FaultyDriver faulty{driver()};
      LeasedProgram leased{faulty, LeasedProgram::Memory::Little};
      leased.pause(6 * MiB);
      faulty.fail_call(number, fault);
      leased.program.pauser->return_ahead();
      leased.program.pauser->return_ahead();
      leased.lease().add_lease(GiB);
      (void)leased.program.pauser->resume(Partly::No);
      untouched = faulty.faults() == 0;
      faulty.stop_failing();
      EXPECT_EQ(retry_releases(), 0u);
      ASSERT_DONE(leased.program.pauser->resume(Partly::No));
      EXPECT_EQ(leased.program.on_device(), leased.moved);
      leased.program.expect_to_go_on();
      if (HasFailure()) return;
    }
    EXPECT_TRUE(untouched);
  }
}

// From some call on the driver refuses everything; then what was back leaves again.
TEST_F(PauseAhead, LeavesAgainThoughTheDriverKeepsRefusing) {
  bool untouched = false;
  for (std::uint64_t number = sweep_start(); !untouched && number < most_calls_of_a_scenario;
       number += sweep_step()) {
    SCOPED_TRACE("from driver call " + std::to_string(number) + " on");
    FaultyDriver faulty{driver()};
    LeasedProgram leased{faulty, LeasedProgram::Memory::Little};
    leased.pause(6 * MiB);
    leased.program.pauser->return_ahead();
    faulty.fail_from(number, CUDA_ERROR_UNKNOWN);
    leased.program.pauser->leave_again();
    untouched = faulty.faults() == 0;
    faulty.stop_failing();
    EXPECT_EQ(retry_releases(), 0u);
    leased.lease().add_lease(GiB);
    ASSERT_DONE(leased.program.pauser->resume(Partly::No));
    leased.program.expect_to_go_on();
    if (HasFailure()) return;
  }
  EXPECT_TRUE(untouched);
}

// The system provides memory at its first use, so the rest still has to be available then.
TEST_F(PauseAhead, OnlyHostMemoryInUseCountsAsTaken) {
  HostStock stock{driver(), 4 * MiB};
  ASSERT_DONE(stock.provide(12 * MiB));
  EXPECT_EQ(stock.bytes(), 12 * MiB);
  EXPECT_EQ(stock.touched_bytes(), 0u);
  (void)stock.at(5 * MiB);
  EXPECT_EQ(stock.touched_bytes(), 4 * MiB);
  (void)stock.pinned_at(0);
  EXPECT_EQ(stock.touched_bytes(), 8 * MiB);
  stock.give_back(4 * MiB);
  EXPECT_EQ(stock.touched_bytes(), 4 * MiB);
}

}  // namespace
}  // namespace cuvmm::test
