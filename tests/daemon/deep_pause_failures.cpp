// SPDX-License-Identifier: Apache-2.0
// Deep pauses by the service with a driver that fails, and helpers, services and programs that die.
#include <algorithm>

#include "daemon/deep_pause_world.hpp"

namespace cuvmm::test {
namespace {

std::string without_colons(std::string name) {
  std::replace(name.begin(), name.end(), ':', '_');
  return name;
}

class ProgramsThatCannotLeave : public DeepPausesOfANode,
                                public ::testing::WithParamInterface<const char*> {};

TEST_P(ProgramsThatCannotLeave, StayPausedAndTheLogSaysWhy) {
  start_with({std::string{"VMM_SIM_FAULT="} + GetParam() + "=CUDA_ERROR_NOT_SUPPORTED"});
  pause_a_program();
  EXPECT_TRUE(logs("idle stays paused on its devices: "));
  EXPECT_TRUE(logs("CUDA_ERROR_NOT_SUPPORTED"));
  EXPECT_TRUE(comes_to("idle", node::DeviceStay::On));
  EXPECT_TRUE(look_at_pause("idle")->is_paused);
  expect_all_right();
}

INSTANTIATE_TEST_SUITE_P(Programs, ProgramsThatCannotLeave,
                         ::testing::Values("cuCheckpointProcessGetState:1",
                                           "cuCheckpointProcessLock:1",
                                           "cuCheckpointProcessCheckpoint:1"),
                         [](const auto& call) { return without_colons(call.param); });

class ProgramsThatFail : public DeepPausesOfANode {};

TEST_F(ProgramsThatFail, ADriverWithoutTheFunctionsLeavesAPlainPause) {
  start_with({});
  ProgramOnDemand idle{*this, "idle", 160, {"VMM_SIM_DRIVER=12.4"}};
  ASSERT_TRUE(idle.has_begun());
  ASSERT_TRUE(comes_true([&] { return is_idle("idle"); }));
  take_memory();
  EXPECT_TRUE(logs("idle stays paused on its devices: "));
  EXPECT_TRUE(logs("12.8"));
  give_back();
  idle.expect_all_right();
}

TEST_F(ProgramsThatFail, AProgramWhosePauseLeftMemoryBehindStays) {
  start_with({});
  ProgramOnDemand shares{*this, "shares", 160};
  ASSERT_TRUE(shares.has_begun());
  shares.tell("share");
  ASSERT_TRUE(shares.says("shared"));
  ASSERT_TRUE(comes_true([&] { return is_idle("shares"); }));
  take_memory();
  EXPECT_TRUE(logs("shares stays paused on its devices: "));
  EXPECT_TRUE(logs("left memory that others may use"));
  give_back();
  shares.expect_all_right();
}

// Each helper fails in the same way, so only the next service brings the program back.
class ProgramsThatCannotReturn : public DeepPausesOfANode,
                                 public ::testing::WithParamInterface<const char*> {};

TEST_P(ProgramsThatCannotReturn, AreTriedAgain) {
  start_with({std::string{"VMM_SIM_FAULT="} + GetParam() + "=CUDA_ERROR_OPERATING_SYSTEM"});
  pause_a_program_deeply();
  give_back();
  program().tell("check");
  EXPECT_TRUE(logs("idle cannot return to its devices yet: "));
  EXPECT_TRUE(logs("CUDA_ERROR_OPERATING_SYSTEM"));
  kill_service();
  start();
  EXPECT_TRUE(program().says("right 1"));
  EXPECT_TRUE(logs("idle is back on its devices"));
  expect_all_right();
}

// GetState is called twice on the way out.
INSTANTIATE_TEST_SUITE_P(Programs, ProgramsThatCannotReturn,
                         ::testing::Values("cuCheckpointProcessGetState:2",
                                           "cuCheckpointProcessGetState:3",
                                           "cuCheckpointProcessGetState:4",
                                           "cuCheckpointProcessRestore:1",
                                           "cuCheckpointProcessUnlock:1"),
                         [](const auto& call) { return without_colons(call.param); });

TEST_F(ProgramsThatFail, AProgramThatStandsHalfwayIsBroughtBack) {
  start_with(
      {"VMM_SIM_FAULT=cuCheckpointProcessCheckpoint:1=CUDA_ERROR_UNKNOWN,"
       "cuCheckpointProcessUnlock:1=CUDA_ERROR_UNKNOWN"});
  pause_a_program();
  EXPECT_TRUE(logs("idle stands halfway off its devices, and is brought back: "));
  EXPECT_TRUE(logs("idle cannot return to its devices yet: "));
  kill_service();
  start();
  expect_all_right();
}

// A helper that is killed during such a call leaves the program in some state.
class HelpersThatAreKilled : public DeepPausesOfANode,
                             public ::testing::WithParamInterface<const char*> {
 public:
  // Long enough for a kill on a busy machine, and short enough for the next helper.
  static std::string slow(const std::string& call) { return "VMM_SIM_DELAY=" + call + "=3s"; }
  void kill_helper() {
    const pid_t process = helper();
    ASSERT_GT(process, 0);
    ::usleep(300'000);
    ::kill(process, SIGKILL);
  }
};
class HelpersKilledOnTheWayOut : public HelpersThatAreKilled {};
class HelpersKilledOnTheWayBack : public HelpersThatAreKilled {};

TEST_P(HelpersKilledOnTheWayOut, TheNextHelperBringsTheProgramBackToAPlainPause) {
  start_with({slow(GetParam())});
  pause_a_program();
  kill_helper();
  EXPECT_TRUE(logs("its helper was killed by signal 9"));
  EXPECT_TRUE(logs("idle is back on its devices"));
  EXPECT_TRUE(comes_to("idle", node::DeviceStay::On));
  EXPECT_TRUE(look_at_pause("idle")->is_paused);
  expect_all_right();
}

INSTANTIATE_TEST_SUITE_P(Programs, HelpersKilledOnTheWayOut,
                         ::testing::Values("cuCheckpointProcessGetState", "cuCheckpointProcessLock",
                                           "cuCheckpointProcessCheckpoint"),
                         [](const auto& call) { return call.param; });

TEST_P(HelpersKilledOnTheWayBack, TheNextHelperGoesOn) {
  start_with({slow(GetParam())});
  pause_a_program_deeply();
  give_back();
  program().tell("check");
  kill_helper();
  EXPECT_TRUE(logs("its helper was killed by signal 9"));
  EXPECT_TRUE(program().says("right 1"));
  expect_all_right();
}

INSTANTIATE_TEST_SUITE_P(Programs, HelpersKilledOnTheWayBack,
                         ::testing::Values("cuCheckpointProcessGetState",
                                           "cuCheckpointProcessRestore",
                                           "cuCheckpointProcessUnlock"),
                         [](const auto& call) { return call.param; });

class ProgramsWhoseHelpersAreKilled : public HelpersThatAreKilled {};

// Between restore and unlock. The contexts of 16 MiB would not fit beside what is guaranteed a
// second time.
TEST_F(ProgramsWhoseHelpersAreKilled, NeedNoMoreRoomAfterARestore) {
  start_with({slow("cuCheckpointProcessUnlock")});
  pause_a_program_deeply();
  give_back();
  auto guaranteed = RawClient::at(*this, "guaranteed", 230 * MiB);
  ASSERT_TRUE(guaranteed.hear<node::Accepted>());
  program().tell("check");
  kill_helper();
  EXPECT_TRUE(logs("its helper was killed by signal 9"));
  EXPECT_TRUE(program().says("right 1"));
  EXPECT_TRUE(comes_true([&] { return look_at_device(socket()).foreign == 16 * MiB; }));
  expect_all_right();
}

class ServicesThatAreKilled : public HelpersThatAreKilled {
 public:
  enum class With : std::uint8_t { Helper, Nothing };
  void kill_service_during(With what) {
    helper();
    ::usleep(300'000);
    if (what == With::Nothing) ::kill(service().pid(), SIGKILL);
    kill_service();
  }
};

// The helper goes on alone, and undoes what it has begun.
TEST_P(ServicesThatAreKilled, OnTheWayOutTheNextServiceBringsTheProgramBack) {
  for (const With what : {With::Helper, With::Nothing}) {
    start_with({slow(GetParam())});
    pause_a_program();
    kill_service_during(what);
    give_back();
    start();
    program().expect_all_right();
    kill_service();
  }
}

INSTANTIATE_TEST_SUITE_P(Programs, ServicesThatAreKilled,
                         ::testing::Values("cuCheckpointProcessLock",
                                           "cuCheckpointProcessCheckpoint"),
                         [](const auto& call) { return call.param; });

class ServicesKilledDuringAReturn : public ServicesThatAreKilled {};

TEST_P(ServicesKilledDuringAReturn, TheNextServiceGoesOn) {
  for (const With what : {With::Helper, With::Nothing}) {
    start_with({slow(GetParam())});
    pause_a_program_deeply();
    give_back();
    program().tell("look");
    kill_service_during(what);
    start();
    EXPECT_TRUE(program().says("looked"));
    program().expect_all_right();
    kill_service();
  }
}

INSTANTIATE_TEST_SUITE_P(Programs, ServicesKilledDuringAReturn,
                         ::testing::Values("cuCheckpointProcessRestore",
                                           "cuCheckpointProcessUnlock"),
                         [](const auto& call) { return call.param; });

// The books are right, and the service goes on for others.
TEST_F(ProgramsThatFail, AProgramThatIsKilledOnTheWayOutLeavesNothing) {
  start_with({"VMM_SIM_DELAY=cuCheckpointProcessCheckpoint=2s"});
  pause_a_program();
  helper();
  ::usleep(300'000);
  expect_that_its_death_leaves_nothing();
}

}  // namespace
}  // namespace cuvmm::test
