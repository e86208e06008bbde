// SPDX-License-Identifier: Apache-2.0
// Host memory that is pinned before it is needed.
#include "spill/spill_ahead.hpp"

#include "paused_program.hpp"

namespace cuvmm::test {
namespace {

constexpr std::uint64_t a_minute = 60ull * 1'000'000'000;

class SpillAheadTest : public PauseTest {
 protected:
  static MemorySettings settings() {
    MemorySettings chosen;
    chosen.limit = SizeLimit::of_bytes(64 * MiB);
    chosen.spill = {SpillTo::Host, SizeLimit::of_bytes(64 * MiB)};
    return chosen;
  }
  static bool look(SpillAhead& ahead, Program& program, std::uint64_t now) {
    const int device = device_of(program).ordinal();
    return ahead.step(device_of(program), program.memory->holdings().spilled_free(device), now);
  }
  static ChunkCounters spilled(Program& program) { return device_of(program).store().spilled(); }
};

TEST_F(SpillAheadTest, NothingIsPinnedWhileTheDeviceHasRoom) {
  Program program{driver(), settings()};
  program.add(20 * MiB, true);
  SpillAhead ahead;
  EXPECT_FALSE(look(ahead, program, now_ns()));
  EXPECT_EQ(spilled(program).physical_free, 0u);
  program.free_all();
}

TEST_F(SpillAheadTest, AQuarterOfTheBoundIsReadyWhenTheDeviceIsNearlyFull) {
  Program program{driver(), settings()};
  program.add(62 * MiB, true);
  SpillAhead ahead;
  while (look(ahead, program, now_ns())) {
  }
  EXPECT_EQ(spilled(program).physical_free, 16 * MiB);
  EXPECT_EQ(spilled(program).physical_in_use, 0u);
  const Size on_device = program.on_device();
  program.add(8 * MiB, true);
  EXPECT_GE(spilled(program).physical_in_use, 6 * MiB);
  EXPECT_LE(program.on_device(), std::max(on_device, 64 * MiB));
  program.expect_intact();
  program.free_all();
}

TEST_F(SpillAheadTest, LongUnusedMemoryIsReleased) {
  Program program{driver(), settings()};
  program.add(62 * MiB, false);
  SpillAhead ahead;
  const std::uint64_t now = now_ns();
  while (look(ahead, program, now)) {
  }
  EXPECT_NE(spilled(program).physical_free, 0u);
  program.free_all();
  device_of(program).give_back_cached();
  EXPECT_FALSE(look(ahead, program, now + 1));
  EXPECT_NE(spilled(program).physical_free, 0u);
  while (look(ahead, program, now + a_minute)) {
  }
  EXPECT_EQ(spilled(program).physical_free, 0u);
}

// Mapped free memory is as good as ready memory, and is released in the same way.
TEST_F(SpillAheadTest, MappedFreeMemoryCountsAsReady) {
  Program program{driver(), settings()};
  program.add(62 * MiB, false);
  program.add(32 * MiB, true);
  program.free(1);
  EXPECT_GE(program.memory->holdings().spilled_free(0), 30 * MiB);
  SpillAhead ahead;
  const std::uint64_t now = now_ns();
  EXPECT_FALSE(look(ahead, program, now)) << "enough is ready";
  program.free_all();
  device_of(program).give_back_cached();
  EXPECT_FALSE(look(ahead, program, now + 1));
  while (look(ahead, program, now + a_minute)) {
  }
  EXPECT_EQ(program.memory->holdings().spilled_free(0), 0u);
  EXPECT_EQ(spilled(program).physical_in_use, 0u);
  EXPECT_EQ(spilled(program).physical_free, 0u);
}

// If as much is needed again, it is ready, and more.
TEST_F(SpillAheadTest, MoreThanThePeakNeedIsReady) {
  MemorySettings chosen = settings();
  chosen.spill = {SpillTo::Host, SizeLimit::of_bytes(1 * GiB)};
  Program program{driver(), chosen};
  program.add(62 * MiB, true);
  program.add(40 * MiB, false);
  SpillAhead ahead{8 * MiB};
  const std::uint64_t now = now_ns();
  look(ahead, program, now);
  program.free(1);
  while (look(ahead, program, now)) {
  }
  EXPECT_GE(spilled(program).physical_free, 40 * MiB);
  program.free_all();
}

std::atomic<Size> available_on_host{0};

// Without a bound of its own, what spills would otherwise grow until the kernel ended the process.
TEST_F(SpillAheadTest, MemorySpillsOnlyAsFarAsTheHostHasIt) {
  MemorySettings chosen = settings();
  chosen.spill = {SpillTo::Host, SizeLimit::none()};
  chosen.available_on_host = [] { return available_on_host.load(); };
  chosen.wait = Duration{1000};
  available_on_host = left_to_the_host;
  Program program{driver(), chosen};
  program.add(62 * MiB, true);
  CUdeviceptr address = 0;
  EXPECT_EQ(program.memory->allocate(&address, 8 * MiB), Answer{CUDA_ERROR_OUT_OF_MEMORY});
  EXPECT_EQ(program.memory->allocate_ordered(&address, 8 * MiB, StreamName{}),
            Answer{CUDA_ERROR_OUT_OF_MEMORY});
  EXPECT_EQ(spilled(program).physical_in_use, 0u);

  available_on_host = left_to_the_host + GiB;
  Answer answer{CUDA_ERROR_OUT_OF_MEMORY};
  for (int tries = 0; tries < 1000 && answer != Answer{CUDA_SUCCESS}; ++tries) {
    answer = program.memory->allocate(&address, 8 * MiB);
  }
  ASSERT_EQ(answer, Answer{CUDA_SUCCESS});
  EXPECT_GE(spilled(program).physical_in_use, 8 * MiB - 2 * MiB);
  EXPECT_EQ(program.memory->free(address), Answer{CUDA_SUCCESS});
  program.free_all();
}

}  // namespace
}  // namespace cuvmm::test
