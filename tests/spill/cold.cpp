// SPDX-License-Identifier: Apache-2.0
// Memory that a program has not used for a while, which the node service may have moved out.
#include <optional>

#include "paused_program.hpp"
#include "spill/placement.hpp"

namespace cuvmm::test {
namespace {

// A service that grants everything and asks for nothing.
class WillingLessor final : public Lessor {
 public:
  void begin(LeasedBudget& budget, const Uuid&, Size) override { budget.lease_from(*this); }
  Extended extend(LeasedBudget& budget, Size size) override {
    budget.add_lease(size);
    return Extended::Yes;
  }
  bool wait_for(LeasedBudget&, Size, std::uint64_t, std::uint64_t, const StillWanted&) override {
    return false;
  }
};

class ColdMemoryOfAProgram : public PauseTest {
 protected:
  bool lies_near(CUdeviceptr address) const {
    for (const HeldChunk& one : program->memory->holdings().chunks(0)) {
      if (address >= one.address && address < one.address + one.size) {
        return residency(one.where, 0) == Residency::Near;
      }
    }
    ADD_FAILURE() << "nothing lies there";
    return false;
  }
  MemorySettings leased(Size host = 64 * MiB) {
    MemorySettings chosen;
    chosen.spill = {SpillTo::Host, SizeLimit::of_bytes(host)};
    chosen.lessor = &lessor;
    return chosen;
  }
  // Looks as the engine's thread does, ten times a second; the program uses `use` in between.
  void look_for(int moments, CUdeviceptr use = 0) {
    for (int i = 0; i < moments; ++i) {
      uses.begin_next_moment();
      placement->step(device_of(*program), clock += 100'000'000);
      if (use != 0) uses.note(use);
    }
  }
  void TearDown() override {
    if (program) {
      program->expect_intact();
      program->free_all();
    }
    placement.reset();
    program.reset();
    PauseTest::TearDown();
  }
  Result<Size> move_out(Size wanted) {
    return placement->move_out(device_of(*program), wanted, Duration{1'000'000});
  }

  void begin(const MemorySettings& settings) {
    program.emplace(driver(), settings);
    placement.emplace(ProgramParts{.driver = program->driver,
                                   .memory = *program->memory,
                                   .calls = program->calls,
                                   .settle_queued =
                                       [this](std::uint64_t) {
                                         before_it_stands_still();
                                         return true;
                                       }},
                      uses);
    program->add(20 * MiB, true);
    program->add(20 * MiB, true);
  }

  WillingLessor lessor;
  LastUses uses;
  std::function<void()> before_it_stands_still = [] {};
  std::optional<Program> program;
  std::optional<Placement> placement;
  std::uint64_t clock = 1'000'000'000'000;
};

TEST_F(ColdMemoryOfAProgram, IsWhatItHasNotUsedForSeconds) {
  begin(leased());
  look_for(20);
  EXPECT_EQ(placement->cold(device_of(*program)), 0u) << "it is not known yet";
  const CUdeviceptr hot = program->blocks[1].address;
  look_for(40, hot);
  const Size cold = placement->cold(device_of(*program));
  EXPECT_GE(cold, 16 * MiB);
  EXPECT_LE(cold, 24 * MiB);

  const Size held = device_of(*program).budget().committed_bytes();
  const auto moved = move_out(unlimited);
  ASSERT_DONE(moved);
  EXPECT_EQ(*moved, cold);
  device_of(*program).store().reclaim(device_of(*program).location(), unlimited);
  EXPECT_LE(device_of(*program).budget().committed_bytes(), held - cold);
  EXPECT_TRUE(lies_near(hot + 10 * MiB));
  EXPECT_FALSE(lies_near(program->blocks[0].address + 10 * MiB));
  EXPECT_EQ(placement->cold(device_of(*program)), 0u) << "until it is looked for again";
}

TEST_F(ColdMemoryOfAProgram, IsMovedOnlyAsFarAsAsked) {
  begin(leased());
  look_for(60);
  const auto moved = move_out(8 * MiB);
  ASSERT_DONE(moved);
  EXPECT_GE(*moved, 8 * MiB);
  EXPECT_LT(*moved, 36 * MiB);
}

TEST_F(ColdMemoryOfAProgram, IsNoMoreThanMayBeSpilled) {
  begin(leased(4 * MiB));
  look_for(60);
  EXPECT_LE(placement->cold(device_of(*program)), 4 * MiB);
}

TEST_F(ColdMemoryOfAProgram, IsNoneWhileGraphsWithUnseenMemoryRun) {
  begin(leased());
  look_for(60);
  EXPECT_NE(placement->cold(device_of(*program)), 0u);
  uses.note_unseen();
  look_for(11);
  EXPECT_EQ(placement->cold(device_of(*program)), 0u);
}

TEST_F(ColdMemoryOfAProgram, IsNotLookedForWithoutALeasedBudget) {
  MemorySettings alone = leased();
  alone.lessor = nullptr;
  begin(alone);
  look_for(60);
  EXPECT_EQ(placement->cold(device_of(*program)), 0u);
}

// Memory that the host's budget has no room for stays on the device.
TEST_F(ColdMemoryOfAProgram, StaysIfTheHostHasNoRoomForIt) {
  MemorySettings settings = leased();
  settings.lessor = nullptr;
  settings.host = std::make_shared<LeasedBudget>(8 * MiB);
  begin(settings);
  device_of(*program).budget().lease_from(lessor);
  look_for(60);
  const auto moved = move_out(unlimited);
  ASSERT_DONE(moved);
  EXPECT_LE(*moved, 8 * MiB);
  EXPECT_LE(program->memory->host_budget()->committed_bytes(), 8 * MiB);
}

// A call of the program may be destroying it when the placement decides to move.
TEST_F(ColdMemoryOfAProgram, MovesInNoContextThatHasEndedMeanwhile) {
  begin(leased());
  look_for(60);
  EXPECT_GT(placement->cold(device_of(*program)), 0u);
  CUcontext context = nullptr;
  ASSERT_CUDA(driver().cuCtxGetCurrent(&context));
  before_it_stands_still = [&] { program->memory->contexts().ended(context); };
  const auto moved = move_out(unlimited);
  EXPECT_FALSE(moved.ok());
  EXPECT_FALSE(program->calls.is_shut());
  program->memory->contexts().began(context);
}

}  // namespace
}  // namespace cuvmm::test
