// SPDX-License-Identifier: Apache-2.0
// How launches yield to processes of higher priority, whose boards this process reads.
#include "engine/time_lease.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/clock.hpp"
#include "engine/yielding.hpp"
#include "vmm_world.hpp"

namespace cuvmm::test {
namespace {

using node::GrantBoard;
using node::TimeGrant;

class NoTenant final : public lease::Tenant {
 public:
  Size cached(const LeasedBudget& /*budget*/) override { return 0; }
  void free_cache(LeasedBudget& /*budget*/, Size /*wanted*/) override {}
  Size cold(const LeasedBudget& /*budget*/) override { return 0; }
  void move_out_cold(LeasedBudget& /*budget*/, Size /*wanted*/, Duration /*within*/) override {}
  bool is_idle() override { return false; }
  Result<void> pause(Duration /*within*/, const Fellows& /*fellows*/) override { return {}; }
  Result<void> resume(Come /*how*/) override { return {}; }
  bool is_paused() const override { return false; }
  bool has_held_calls() const override { return false; }
  void wait_outside(const std::function<void()>& wait) override { wait(); }
};

// A board as the service makes one, with the first device of the simulated driver second.
class BoardFile {
 public:
  explicit BoardFile(const CUuuid& device) : file_(::memfd_create("board", MFD_CLOEXEC)) {
    EXPECT_EQ(::ftruncate(file_.number(), sizeof(GrantBoard)), 0);
    void* const memory =
        ::mmap(nullptr, sizeof(GrantBoard), PROT_READ | PROT_WRITE, MAP_SHARED, file_.number(), 0);
    EXPECT_NE(memory, MAP_FAILED);
    board_ = static_cast<GrantBoard*>(memory);
    std::copy_n(reinterpret_cast<const std::uint8_t*>(device.bytes), words().device.size(),
                words().device.begin());
  }
  BoardFile(const BoardFile&) = delete;
  BoardFile& operator=(const BoardFile&) = delete;
  ~BoardFile() { ::munmap(board_, sizeof(GrantBoard)); }

  const Fd& file() const { return file_; }
  GrantBoard& board() const { return *board_; }
  node::GrantWords& words() const { return board_->devices[1]; }

 private:
  Fd file_;
  GrantBoard* board_ = nullptr;
};

// What the lease refers to. Its thread may look at the boards after a test.
struct TimeSharedProgram {
  TimeSharedProgram(const Driver& driver, const CUuuid& device)
      : mine(device), above(device), lease({driver, watch, calls, captures, legacy}) {
    EXPECT_TRUE(grants.take(mine.file()));
    grants.take_foreground(slot, above.file());
    hold();
    lease.begin(leases, grants);
  }
  ~TimeSharedProgram() = default;
  TimeSharedProgram(const TimeSharedProgram&) = delete;
  TimeSharedProgram& operator=(const TimeSharedProgram&) = delete;

  // The process holds the device, by a new grant.
  void hold() {
    mine.board().beat_ns.store(now_ns());
    mine.words().grant.store(node::grant_word(++grant, TimeGrant::Held));
    mine.board().changes.fetch_add(1);
  }

  static constexpr std::uint32_t slot = 3;
  BoardFile mine;
  BoardFile above;
  std::uint32_t grant = 0;
  NoTenant tenant;
  lease::Leases leases{lease::LeaseSettings{}, tenant};
  lease::Grants grants;
  Watch watch;
  CallBarrier calls{CallBarrier::Of::Calls};
  Captures captures;
  LegacyBarrier legacy;
  TimeLease lease;
};

class TimeLeaseTest : public VmmTest {
 protected:
  void SetUp() override {
    VmmTest::SetUp();
    CUuuid uuid{};
    ASSERT_CUDA(driver().cuDeviceGetUuid(&uuid, 0));
    static auto* const all = new std::vector<std::unique_ptr<TimeSharedProgram>>;  // never freed
    program_ = all->emplace_back(std::make_unique<TimeSharedProgram>(driver(), uuid)).get();
    while (!program_->lease.counts()) ::usleep(100);
  }
  void TearDown() override {
    program_->lease.shut_down();
    VmmTest::TearDown();
  }

  // How long a launch waits for others at least, each time with a new grant.
  std::uint64_t shortest_wait() {
    std::uint64_t shortest = ~std::uint64_t{0};
    for (int i = 0; i < 100; ++i) {
      program_->hold();
      shortest = std::min(shortest, wait_of_a_launch());
    }
    return shortest;
  }
  std::uint64_t wait_of_a_launch() {
    const std::uint64_t began = now_ns();
    EXPECT_EQ(program_->watch.before({Call::cuLaunchKernel, Effect::Submits}), CUDA_SUCCESS);
    return now_ns() - began;
  }

  TimeSharedProgram* program_ = nullptr;
};

TEST_F(TimeLeaseTest, EachGrantYieldsForAShortTimeToTheForeground) {
  program_->mine.words().yields_to.store(1U << TimeSharedProgram::slot);
  program_->above.words().wants.store(1);
  EXPECT_GE(shortest_wait(), Yielding::longest_ns);
}

TEST_F(TimeLeaseTest, TheForegroundIsHeededNoLongerInTheSameGrant) {
  program_->mine.words().yields_to.store(1U << TimeSharedProgram::slot);
  program_->above.words().wants.store(1);
  wait_of_a_launch();
  std::uint64_t shortest = ~std::uint64_t{0};
  for (int i = 0; i < 100; ++i) shortest = std::min(shortest, wait_of_a_launch());
  EXPECT_LT(shortest, Yielding::longest_ns);
}

TEST_F(TimeLeaseTest, DoesNotWaitForAForegroundWithoutWork) {
  program_->mine.words().yields_to.store(1U << TimeSharedProgram::slot);
  EXPECT_LT(shortest_wait(), Yielding::longest_ns);
}

TEST_F(TimeLeaseTest, DoesNotWaitForBoardsThatTheServiceDoesNotName) {
  program_->above.words().wants.store(1);
  EXPECT_LT(shortest_wait(), Yielding::longest_ns);
  program_->mine.words().yields_to.store(1U << (TimeSharedProgram::slot + 1));
  EXPECT_LT(shortest_wait(), Yielding::longest_ns) << "that board has never come";
}

TEST_F(TimeLeaseTest, DoesNotWaitForWorkOnAnotherDevice) {
  program_->mine.words().yields_to.store(1U << TimeSharedProgram::slot);
  program_->above.board().devices[0].wants.store(1);
  EXPECT_LT(shortest_wait(), Yielding::longest_ns);
}

}  // namespace
}  // namespace cuvmm::test
