// SPDX-License-Identifier: Apache-2.0
// cuvmm's own allocator, with traces played to it.
#include "replay/arena_policy.hpp"
#include "unit/vmm_world.hpp"

namespace cuvmm::test {
namespace {

using replay::ArenaPolicy;
using replay::Kind;
using replay::Outcome;
using replay::ReplayTrace;
using replay::Simulation;
using replay::TraceBuilder;

class ReplayArena : public DriverContract {
 protected:
  void SetUp() override {
    NEEDS_SIMULATED_DRIVER();
    DriverContract::SetUp();
  }
  void TearDown() override {
    if (simulation_.has_value()) {
      simulation_.reset();
      EXPECT_CUDA(driver().cuDevicePrimaryCtxRelease(device()));
    }
    DriverContract::TearDown();
  }

  Outcome played(const ReplayTrace& trace, const ArenaPolicy::Settings& settings) {
    if (!simulation_.has_value()) {
      simulation_ = GIVEN_VALUE(Simulation::start(driver_path(), 8 * GiB));
    }
    const auto policy = GIVEN_VALUE(ArenaPolicy::create(*simulation_, settings));
    return replay::play(trace, *policy);
  }

 private:
  std::optional<Simulation> simulation_;
};

// Allocates blocks, frees every second one, then allocates one block of nearly all the freed
// memory.
ReplayTrace comb(Size block, std::uint64_t count, Kind kind) {
  TraceBuilder builder;
  const auto allocate = [&](std::uint64_t address, Size size) {
    builder.allocate({.address = address, .size = size, .kind = kind});
  };
  for (std::uint64_t i = 1; i <= count; ++i) allocate(i, block);
  for (std::uint64_t i = 1; i <= count; i += 2) builder.free(i, i);
  allocate(count + 1, count / 2 * block / 10 * 9);
  return builder.finish();
}

TEST_F(ReplayArena, AllFreeChunksOfAStreamOrderedCombAreReused) {
  const Outcome outcome = played(comb(2 * MiB, 64, Kind::StreamOrdered), {.limit = 128 * MiB});
  EXPECT_TRUE(outcome.completed) << outcome.refusal.text();
  EXPECT_GT(outcome.counters.moves, 0u);
  EXPECT_EQ(outcome.counters.compacted_blocks, 0u);
}

TEST_F(ReplayArena, BlockingCombIsMovedTogetherInItsWindows) {
  const Outcome outcome = played(comb(512 * KiB, 256, Kind::Blocking), {.limit = 128 * MiB});
  EXPECT_TRUE(outcome.completed) << outcome.refusal.text();
  EXPECT_GT(outcome.counters.compacted_blocks, 0u);
}

TEST_F(ReplayArena, SmallBlocksOfEitherKindAreServed) {
  for (const Kind kind : {Kind::StreamOrdered, Kind::Blocking}) {
    const Outcome outcome = played(comb(512, 1000, kind), {.limit = 8 * MiB});
    EXPECT_TRUE(outcome.completed) << outcome.refusal.text();
  }
}

TEST_F(ReplayArena, MoreThanTheLimitIsOutOfMemory) {
  for (const Kind kind : {Kind::StreamOrdered, Kind::Blocking}) {
    const Outcome outcome = played(comb(2 * MiB, 64, kind), {.limit = 100 * MiB});
    EXPECT_FALSE(outcome.completed);
    EXPECT_EQ(outcome.refusal.kind, ErrorKind::OutOfMemory);
    EXPECT_EQ(outcome.events, 50u);
  }
}

TEST_F(ReplayArena, ChunksHaveTheRequestedSize) {
  TraceBuilder builder;
  builder.allocate({.address = 1, .size = 64 * MiB});
  const ReplayTrace trace = builder.finish();
  EXPECT_EQ(played(trace, {.chunk = 2 * MiB}).counters.creates, 32u);
  EXPECT_EQ(played(trace, {.chunk = 16 * MiB}).counters.creates, 4u);
}

}  // namespace
}  // namespace cuvmm::test
