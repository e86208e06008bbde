// SPDX-License-Identifier: Apache-2.0
// One process locks another one's calls and takes it off the card. All processes here are started
// for the purpose, so that no other scenario's memory is in the way.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "support/checkpoint_helper.hpp"
#include "support/driver_under_test.hpp"
#include "support/memory.hpp"

namespace cuvmm::test {
namespace {

using namespace std::chrono_literals;

constexpr Size held = 8 * MiB;
constexpr std::uint32_t pattern = 0x5eed1234;

// Sets a word at each signal and tells once the call has returned.
CHILD_ROLE(sets_a_word_when_told) {
  GIVEN(driver().cuInit(0));
  PrimaryContext context;
  const GivenBlocking memory{held};
  GIVEN(driver().cuMemsetD32(memory.address(), pattern, held / sizeof pattern));
  GIVEN(synchronize());
  link.signal();
  for (std::uint32_t next = 1;; ++next) {
    if (link.receive<char>() != '!') break;
    GIVEN(driver().cuMemsetD32(memory.address(), pattern + next, held / sizeof pattern));
    std::uint32_t last = 0;
    GIVEN(driver().cuMemcpyDtoH(&last, memory.address() + held - sizeof last, sizeof last));
    link.send(last - next);
  }
}

// Reads its memory once it is told, without having written to it since.
CHILD_ROLE(reads_its_memory_when_told) {
  GIVEN(driver().cuInit(0));
  PrimaryContext context;
  const GivenBlocking memory{held};
  GIVEN(driver().cuMemsetD32(memory.address(), pattern, held / sizeof pattern));
  GIVEN(synchronize());
  link.signal();
  link.wait_for_signal();
  std::vector<std::uint32_t> found(held / sizeof pattern);
  GIVEN(driver().cuMemcpyDtoH(found.data(), memory.address(), held));
  EXPECT_EQ(std::count(found.begin(), found.end(), pattern), std::ssize(found));
}

class Checkpoint : public DriverContract {
 protected:
  void SetUp() override {
    DriverContract::SetUp();
    NEEDS_CALL(cuCheckpointProcessCheckpoint);
    card_ = "contract-" + std::to_string(::getpid());
    helper_.emplace(environment());
    target_.emplace("sets_a_word_when_told", ChildArguments{}, environment());
    target_->link().wait_for_signal();
    if (helper_->read_state(target()).answer == CUDA_ERROR_NOT_SUPPORTED) {
      GTEST_SKIP() << "this card takes no process off itself";
    }
  }
  void TearDown() override {
    target_.reset();
    helper_.reset();
    ::unlink(("/dev/shm/cuvmm-sim-card-" + std::to_string(::geteuid()) + "-" + card_).c_str());
    DriverContract::TearDown();
  }

  // Processes of the simulated driver must share a card to see each other.
  std::vector<std::string> environment() const { return {"VMM_SIM_CARD=" + card_}; }
  CheckpointHelper& helper() { return *helper_; }
  pid_t target() const { return target_->pid(); }

  void begin_call() { target_->link().signal(); }
  void expect_return() { EXPECT_EQ(target_->link().receive<std::uint32_t>(), pattern); }
  bool has_returned_within(std::chrono::milliseconds time) {
    pollfd seen{.fd = target_->link().fd(), .events = POLLIN, .revents = 0};
    return ::poll(&seen, 1, static_cast<int>(time.count())) > 0;
  }

 private:
  std::string card_;
  std::optional<CheckpointHelper> helper_;
  std::optional<Child> target_;
};

TEST_F(Checkpoint, AProcessRunsUntilItIsLocked) {
  EXPECT_EQ(helper().state(target()), CU_PROCESS_STATE_RUNNING);
  EXPECT_CUDA(helper().lock(target()));
  EXPECT_EQ(helper().state(target()), CU_PROCESS_STATE_LOCKED);
  EXPECT_CUDA(helper().unlock(target()));
  EXPECT_EQ(helper().state(target()), CU_PROCESS_STATE_RUNNING);
}

TEST_F(Checkpoint, CallsOfALockedProcessWait) {
  EXPECT_CUDA(helper().lock(target()));
  begin_call();
  EXPECT_FALSE(has_returned_within(200ms));
  EXPECT_CUDA(helper().unlock(target()));
  expect_return();
}

TEST_F(Checkpoint, CallsWaitUntilTheProcessIsBackAndUnlocked) {
  EXPECT_CUDA(helper().lock(target()));
  ASSERT_CUDA(helper().checkpoint(target()));
  EXPECT_EQ(helper().state(target()), CU_PROCESS_STATE_CHECKPOINTED);
  begin_call();
  EXPECT_FALSE(has_returned_within(200ms));
  EXPECT_CUDA(helper().restore(target()));
  EXPECT_EQ(helper().state(target()), CU_PROCESS_STATE_LOCKED);
  EXPECT_FALSE(has_returned_within(200ms));
  EXPECT_CUDA(helper().unlock(target()));
  expect_return();
}

TEST_F(Checkpoint, MemoryKeepsItsContents) {
  Child reader{"reads_its_memory_when_told", {}, environment()};
  reader.link().wait_for_signal();
  EXPECT_CUDA(helper().lock(reader.pid()));
  ASSERT_CUDA(helper().checkpoint(reader.pid()));
  EXPECT_CUDA(helper().restore(reader.pid()));
  EXPECT_CUDA(helper().unlock(reader.pid()));
  reader.link().signal();
  EXPECT_EQ(reader.wait(), 0);
}

TEST_F(Checkpoint, MayHappenAgain) {
  for (int round = 0; round < 3; ++round) {
    EXPECT_CUDA(helper().lock(target()));
    ASSERT_CUDA(helper().checkpoint(target()));
    EXPECT_CUDA(helper().restore(target()));
    EXPECT_CUDA(helper().unlock(target()));
    begin_call();
    expect_return();
  }
}

TEST_F(Checkpoint, OfARunningProcessIsRefused) {
  EXPECT_ANSWER(CUDA_ERROR_ILLEGAL_STATE, helper().checkpoint(target()));
  EXPECT_ANSWER(CUDA_ERROR_ILLEGAL_STATE, helper().restore(target()));
  EXPECT_ANSWER(CUDA_ERROR_ILLEGAL_STATE, helper().unlock(target()));
  EXPECT_EQ(helper().state(target()), CU_PROCESS_STATE_RUNNING);
}

TEST_F(Checkpoint, OfALockedProcessLeavesOnlyCheckpointAndUnlock) {
  EXPECT_CUDA(helper().lock(target()));
  EXPECT_ANSWER(CUDA_ERROR_ILLEGAL_STATE, helper().lock(target()));
  EXPECT_ANSWER(CUDA_ERROR_ILLEGAL_STATE, helper().restore(target()));
  EXPECT_EQ(helper().state(target()), CU_PROCESS_STATE_LOCKED);
  EXPECT_CUDA(helper().unlock(target()));
}

TEST_F(Checkpoint, IsUndoneByARestoreAlone) {
  EXPECT_CUDA(helper().lock(target()));
  ASSERT_CUDA(helper().checkpoint(target()));
  EXPECT_ANSWER(CUDA_ERROR_ILLEGAL_STATE, helper().lock(target()));
  EXPECT_ANSWER(CUDA_ERROR_ILLEGAL_STATE, helper().checkpoint(target()));
  EXPECT_ANSWER(CUDA_ERROR_ILLEGAL_STATE, helper().unlock(target()));
  EXPECT_CUDA(helper().restore(target()));
  EXPECT_CUDA(helper().unlock(target()));
}

TEST_F(Checkpoint, OutlivesTheProcessThatMadeIt) {
  {
    CheckpointHelper first{environment()};
    EXPECT_CUDA(first.lock(target()));
    ASSERT_CUDA(first.checkpoint(target()));
  }
  EXPECT_EQ(helper().state(target()), CU_PROCESS_STATE_CHECKPOINTED);
  EXPECT_CUDA(helper().restore(target()));
  EXPECT_CUDA(helper().unlock(target()));
  begin_call();
  expect_return();
}

TEST_F(Checkpoint, OfAProcessWithoutCudaIsRefused) {
  EXPECT_NE(helper().read_state(1).answer, CUDA_SUCCESS);
  EXPECT_NE(helper().lock(1, 1), CUDA_SUCCESS);
}

}  // namespace
}  // namespace cuvmm::test
