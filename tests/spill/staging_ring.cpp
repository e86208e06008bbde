// SPDX-License-Identifier: Apache-2.0
// Copies through a ring of pinned memory, and pauses that get none.
#include "spill/staging_ring.hpp"

#include <cstring>
#include <thread>

#include "paused_program.hpp"
#include "spill/host_stock.hpp"
#include "support/faulty_driver.hpp"
#include "vmm/leased_budget.hpp"

namespace cuvmm::test {
namespace {

class StagingRingTest : public DriverContract {
 protected:
  static constexpr Size ring_size = 2 * MiB;

  static std::span<std::byte> pinned(HostStock& stock) {
    EXPECT_TRUE(stock.provide(ring_size).ok());
    const HostStock::Part part = stock.pinned_at(0);
    EXPECT_TRUE(part.is_pinned);
    return {part.bytes, ring_size};
  }
  static std::vector<std::byte> numbered(Size size) {
    std::vector<std::byte> bytes(size);
    for (Size i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 4096);
    return bytes;
  }
};

TEST_F(StagingRingTest, EveryByteArrivesInBothDirections) {
  HostStock stock{driver(), ring_size};
  const std::span<std::byte> slots = pinned(stock);
  // Less than a slot, a few of them, more than all of them, and odd ends.
  for (const Size size : {Size{1}, Size{5000}, 512 * KiB, 3 * ring_size, 5 * ring_size + 12345}) {
    SCOPED_TRACE(size);
    const std::vector<std::byte> sent = numbered(size);
    std::vector<std::byte> returned(size);
    const GivenBlocking there{size};
    {
      auto back = StagingRing::open(driver(), CopyDirection::Back, slots);
      ASSERT_TRUE(back.ok());
      auto& ring = **back;
      ASSERT_DONE(ring.add(there.address(), const_cast<std::byte*>(sent.data()), size));
      ASSERT_DONE(ring.wait_for(ring.begun()));
      EXPECT_TRUE(ring.is_over());
    }
    auto out = StagingRing::open(driver(), CopyDirection::Out, slots);
    ASSERT_TRUE(out.ok());
    auto& ring = **out;
    // In two steps, of which the first is waited for while the second is under way.
    const Size half = size / 2;
    ASSERT_DONE(ring.add(there.address(), returned.data(), half));
    const std::size_t first = ring.begun();
    ASSERT_DONE(ring.add(there.address() + half, returned.data() + half, size - half));
    ASSERT_DONE(ring.wait_for(first));
    EXPECT_EQ(std::memcmp(returned.data(), sent.data(), half), 0);
    ASSERT_DONE(ring.wait_for(ring.begun()));
    EXPECT_EQ(returned, sent);
  }
}

TEST_F(StagingRingTest, ARefusedCopyIsReportedAndLeavesNothingRunning) {
  HostStock stock{driver(), ring_size};
  const std::span<std::byte> slots = pinned(stock);
  const GivenBlocking there{4 * ring_size};
  std::vector<std::byte> here(4 * ring_size);
  for (const CopyDirection direction : {CopyDirection::Out, CopyDirection::Back}) {
    for (std::uint64_t number : {1u, 9u, 20u}) {
      FaultyDriver faulty{driver()};
      auto opened = StagingRing::open(faulty, direction, slots);
      ASSERT_TRUE(opened.ok());
      auto& ring = **opened;
      faulty.fail_call(
          direction == CopyDirection::Out ? Call::cuMemcpyDtoHAsync_v2 : Call::cuMemcpyHtoDAsync_v2,
          number, CUDA_ERROR_UNKNOWN);
      Result<void> copied = ring.add(there.address(), here.data(), here.size());
      if (copied.ok()) copied = ring.wait_for(ring.begun());
      ASSERT_FALSE(copied.ok());
      EXPECT_EQ(copied.error().kind, ErrorKind::DriverFailed) << copied.error().text();
      faulty.stop_failing();
      EXPECT_TRUE(ring.is_over());
    }
  }
}

TEST_F(PauseTest, AHostBudgetWithoutRoomForTheRingStillAllowsIt) {
  MemorySettings settings;
  settings.host = std::make_shared<LeasedBudget>(20 * MiB);
  Program program{driver(), settings, small_ring};
  program.add(20 * MiB, true);
  const auto paused = program.pauser->pause(timeout, Strict::No);
  ASSERT_DONE(paused);
  EXPECT_EQ(settings.host->committed_bytes(), 20 * MiB);
  EXPECT_EQ(program.pauser->ready_bytes(), 20 * MiB);  // without a ring, all of it is pinned
  ASSERT_DONE(program.pauser->resume(Partly::No));
  program.expect_intact();
  program.free_all();
}

// As the control thread does, which has no context of its own.
TEST_F(PauseTest, ASecondPauseFindsTheRingPinned) {
  Program program{driver(), {}, small_ring};
  program.add(20 * MiB, true);
  std::thread{[&] {
    for (int pauses = 0; pauses < 2; ++pauses) {
      ASSERT_DONE(program.pauser->pause(timeout, Strict::No));
      EXPECT_EQ(program.pauser->ready_bytes(), small_ring.ring);
      ASSERT_DONE(program.pauser->resume(Partly::No));
    }
  }}.join();
  program.expect_intact();
  program.free_all();
}

// The ring, or without it pieces of the stock.
TEST_F(PauseTest, ARefusalToPinOnlySlowsItDown) {
  for (std::uint64_t number = 1; number <= 6; ++number) {
    SCOPED_TRACE(number);
    FaultyDriver faulty{driver()};
    Program program{faulty, {}, small_ring};
    program.add(20 * MiB, false);
    faulty.fail_call(Call::cuMemHostRegister_v2, number, CUDA_ERROR_OUT_OF_MEMORY);
    ASSERT_DONE(program.pauser->pause(timeout, Strict::No));
    while (program.pauser->pin_more()) continue;
    EXPECT_EQ(faulty.faults(), 1u);
    ASSERT_DONE(program.pauser->resume(Partly::No));
    program.expect_intact();
    program.free_all();
  }
}

}  // namespace
}  // namespace cuvmm::test
