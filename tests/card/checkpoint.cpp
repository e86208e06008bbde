// SPDX-License-Identifier: Apache-2.0
// What a checkpoint does to the books of a shared card.
#include <sys/wait.h>
#include <unistd.h>

#include "card_world.hpp"
#include "support/checkpoint_helper.hpp"

namespace cuvmm::test {
namespace {

class CardCheckpoint : public SharedCards {
 protected:
  static void take_off(CheckpointHelper& helper, const Member& member) {
    ASSERT_CUDA(helper.lock(member.pid()));
    ASSERT_CUDA(helper.checkpoint(member.pid()));
  }
  static void bring_back(CheckpointHelper& helper, const Member& member) {
    ASSERT_CUDA(helper.restore(member.pid()));
    ASSERT_CUDA(helper.unlock(member.pid()));
  }
};

TEST_F(CardCheckpoint, MemoryOfACheckpointedProcessIsFreeForOthers) {
  CheckpointHelper helper{environment()};
  Member away = member();
  Member other = member();
  ASSERT_EQ(away.allocate(40 * MiB), CUDA_SUCCESS);
  take_off(helper, away);
  EXPECT_EQ(other.look().free, memory);
  EXPECT_EQ(other.allocate(60 * MiB), CUDA_SUCCESS);
  ASSERT_EQ(other.free(), CUDA_SUCCESS);
  bring_back(helper, away);
  EXPECT_EQ(other.look().free, memory - 40 * MiB);
  EXPECT_EQ(away.free(), CUDA_SUCCESS);
  EXPECT_EQ(other.look().free, memory);
}

TEST_F(CardCheckpoint, AProcessWithoutRoomStaysOffTheCard) {
  CheckpointHelper helper{environment()};
  Member away = member();
  Member other = member();
  ASSERT_EQ(away.allocate(40 * MiB), CUDA_SUCCESS);
  take_off(helper, away);
  ASSERT_EQ(other.allocate(40 * MiB), CUDA_SUCCESS);
  EXPECT_ANSWER(CUDA_ERROR_OUT_OF_MEMORY, helper.restore(away.pid()));
  EXPECT_EQ(helper.state(away.pid()), CU_PROCESS_STATE_CHECKPOINTED);
  ASSERT_EQ(other.free(), CUDA_SUCCESS);
  bring_back(helper, away);
  EXPECT_EQ(away.look().card.held_bytes, 40 * MiB);
}

TEST_F(CardCheckpoint, ADeadProcessMakesRoom) {
  CheckpointHelper helper{environment()};
  Member away = member();
  Member killed = member();
  ASSERT_EQ(away.allocate(40 * MiB), CUDA_SUCCESS);
  take_off(helper, away);
  ASSERT_EQ(killed.allocate(40 * MiB), CUDA_SUCCESS);
  killed.kill();
  bring_back(helper, away);
}

TEST_F(CardCheckpoint, AKilledProcessLeavesNothing) {
  CheckpointHelper helper{environment()};
  Member killed = member();
  ASSERT_EQ(killed.allocate(40 * MiB), CUDA_SUCCESS);
  take_off(helper, killed);
  killed.kill();
  EXPECT_EQ(helper.read_state(killed.pid()).answer, CUDA_ERROR_INVALID_VALUE);
  // Its place is taken again, and nothing of the checkpoint is left in it.
  Member next = member();
  EXPECT_EQ(helper.state(next.pid()), CU_PROCESS_STATE_RUNNING);
  EXPECT_EQ(next.allocate(memory), CUDA_SUCCESS);
}

TEST_F(CardCheckpoint, ALockWaitsForCallsInsideTheDriver) {
  CheckpointHelper helper{environment()};
  Member slow{environment({"VMM_SIM_DELAY=cuMemAlloc=10s"})};
  slow.tell(Order::Allocate, 2 * MiB);
  CUresult answer = CUDA_SUCCESS;
  for (int i = 0; i < 1000 && answer == CUDA_SUCCESS; ++i) {  // until it has begun the call
    answer = helper.lock(slow.pid(), 20);
    if (answer == CUDA_SUCCESS) {
      EXPECT_CUDA(helper.unlock(slow.pid()));
    }
    ::usleep(20'000);
  }
  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, answer);
  EXPECT_EQ(helper.state(slow.pid()), CU_PROCESS_STATE_RUNNING);
  EXPECT_CUDA(helper.lock(slow.pid(), 40'000));
  // It has answered, so the call is over.
  EXPECT_EQ(slow.link().receive<CUresult>(), CUDA_SUCCESS);
  EXPECT_CUDA(helper.unlock(slow.pid()));
}

TEST_F(CardCheckpoint, ALockedProcessCanBeKilled) {
  CheckpointHelper helper{environment()};
  Member killed = member();
  EXPECT_CUDA(helper.lock(killed.pid()));
  killed.kill();
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, helper.unlock(killed.pid()));
}

CUresult start_and_allocate() {
  CUcontext context = nullptr;
  CUdeviceptr address = 0;
  CUresult answer = driver().cuInit(0);
  if (answer == CUDA_SUCCESS) answer = driver().cuDevicePrimaryCtxRetain(&context, 0);
  if (answer == CUDA_SUCCESS) answer = driver().cuCtxSetCurrent(context);
  return answer == CUDA_SUCCESS ? driver().cuMemAlloc(&address, 2 * MiB) : answer;
}
CHILD_ROLE(asks_for_its_state_and_forks) {
  CUprocessState state{};
  EXPECT_CUDA(driver().cuCheckpointProcessGetState(::getpid(), &state));
  const pid_t forked = ::fork();
  if (forked == 0) ::_exit(static_cast<int>(start_and_allocate()));
  int status = 0;
  EXPECT_EQ(::waitpid(forked, &status, 0), forked);
  EXPECT_EQ(status, 0);
  EXPECT_CUDA(driver().cuCheckpointProcessGetState(::getpid(), &state));
}

// To answer, the driver gives the parent a place on the card, which is not the child's.
TEST_F(CardCheckpoint, AChildOfAProcessThatHasNotStartedUsesTheCard) {
  EXPECT_EQ(run_child("asks_for_its_state_and_forks", {}, environment()), 0);
}

CHILD_ROLE(has_a_card_of_its_own) {
  GIVEN(driver().cuInit(0));
  CUprocessState state{};
  EXPECT_ANSWER(CUDA_ERROR_NOT_SUPPORTED, driver().cuCheckpointProcessGetState(::getpid(), &state));
  EXPECT_ANSWER(CUDA_ERROR_NOT_SUPPORTED, driver().cuCheckpointProcessLock(::getpid(), nullptr));
}

TEST(SimulatedCheckpoint, NeedsASharedCard) {
  EXPECT_EQ(run_child("has_a_card_of_its_own"), 0);
}

CHILD_ROLE(has_an_older_driver) {
  GIVEN(driver().cuInit(0));
  CUprocessState state{};
  EXPECT_FALSE(driver().has(Call::cuCheckpointProcessGetState));
  EXPECT_ANSWER(CUDA_ERROR_NOT_SUPPORTED, driver().cuCheckpointProcessGetState(::getpid(), &state));
}

TEST(SimulatedCheckpoint, IsUnknownToOlderDrivers) {
  EXPECT_EQ(run_child("has_an_older_driver", {}, {"VMM_SIM_DRIVER=12.6"}), 0);
}

}  // namespace
}  // namespace cuvmm::test
