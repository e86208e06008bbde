// SPDX-License-Identifier: Apache-2.0
// cuvmm pause --deep and the resume after it, with a driver that fails and helpers that die.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <string>
#include <thread>

#include "driver/cuda.hpp"
#include "preload/deep_pause_world.hpp"
#include "sim/card/books.hpp"

namespace cuvmm::test {
namespace {

std::string name_of_call(const ::testing::TestParamInfo<const char*>& call) {
  std::string name = call.param;
  std::replace(name.begin(), name.end(), ':', '_');
  return name;
}

struct Refusal {
  const char* call;
  const char* answer;
};
class DeepPauseRefused : public DeepPause, public ::testing::WithParamInterface<Refusal> {};

TEST_P(DeepPauseRefused, LeavesAPlainPauseAndSaysWhy) {
  const std::string refuse = fault(std::string{GetParam().call} + ":1=" + GetParam().answer);
  const Finished finished = run_beside(refuse + pause("--json") + resume());
  EXPECT_TRUE(says(finished, "pause " + std::to_string(paused_on_devices)));
  EXPECT_TRUE(says(finished, "\"done\": true"));
  EXPECT_TRUE(says(finished, "\"paused\": true"));
  EXPECT_TRUE(says(finished, "\"off_devices\": false"));
  EXPECT_TRUE(says(finished, GetParam().answer));
  EXPECT_TRUE(says(finished, "resume 0"));
  expect_all_right(finished);
}

INSTANTIATE_TEST_SUITE_P(
    ByTheDriver, DeepPauseRefused,
    ::testing::Values(Refusal{"cuCheckpointProcessGetState", "CUDA_ERROR_INVALID_VALUE"},
                      Refusal{"cuCheckpointProcessLock", "CUDA_ERROR_NOT_READY"},
                      Refusal{"cuCheckpointProcessCheckpoint", "CUDA_ERROR_NOT_SUPPORTED"}),
    [](const auto& refusal) { return refusal.param.call; });

// The test holds the lock of such commands until the program has been resumed.
TEST_F(DeepPause, SaysIfAnotherCommandHasResumedTheProgram) {
  const std::string held =
      "python3 -c 'import fcntl, os, time\n"
      "folder = os.environ[\"XDG_RUNTIME_DIR\"]\n"
      "file = open(folder + \"/cuvmm/checkpoints.lock\", \"a\")\n"
      "fcntl.lockf(file, fcntl.LOCK_EX)\n"
      "open(folder + \"/locked\", \"w\").close()\n"
      "while not os.path.exists(folder + \"/unlock\"): time.sleep(0.01)' & "
      "holder=$!\n" +
      until("[ -e $XDG_RUNTIME_DIR/locked ]");
  const std::string asked = cli() + " pause --deep --json $program & asker=$!\n" +
                            until(cli() + " top --json $program | grep -q \"paused.: true\"") +
                            resume();
  const Finished finished =
      run_beside(held + asked +
                 "touch $XDG_RUNTIME_DIR/unlock; wait $asker; echo \"pause $?\"; wait $holder\n");
  EXPECT_TRUE(says(finished, "pause 1"));
  EXPECT_TRUE(says(finished, "\"done\": false"));
  EXPECT_TRUE(says(finished, "\"paused\": false"));
  EXPECT_NE(finished.err.find("another command has resumed it meanwhile"), std::string::npos)
      << finished.err;
  expect_all_right(finished);
}

constexpr const char* needs_init = "cuCheckpointProcessGetState:1=CUDA_ERROR_NOT_INITIALIZED";

TEST_F(DeepPause, InitializesADriverThatAsksForIt) {
  const Finished finished = run_beside(fault(needs_init) + pause() + resume());
  EXPECT_TRUE(says(finished, "pause 0"));
  EXPECT_TRUE(says(finished, "resume 0"));
  expect_all_right(finished);
}

TEST_F(DeepPause, WithoutADriverThatStartsIsAPlainPause) {
  const std::string refuse = fault(std::string{needs_init} + ",cuInit:1=CUDA_ERROR_NO_DEVICE");
  const Finished finished = run_beside(refuse + pause("--json") + resume());
  EXPECT_TRUE(says(finished, "pause " + std::to_string(paused_on_devices)));
  EXPECT_TRUE(says(finished, "CUDA_ERROR_NO_DEVICE"));
  EXPECT_TRUE(says(finished, "resume 0"));
  expect_all_right(finished);
}

TEST_F(DeepPause, OnAnOlderDriverIsAPlainPause) {
  const Finished finished = run_beside(pause() + resume(), "20 30", "export VMM_SIM_DRIVER=12.4; ");
  EXPECT_TRUE(says(finished, "pause " + std::to_string(paused_on_devices)));
  EXPECT_TRUE(says(finished, "its contexts and modules stay on the device"));
  EXPECT_TRUE(says(finished, "12.8"));
  expect_all_right(finished);
}

TEST_F(DeepPause, WhatCannotBeUndoneIsUndoneByTheResume) {
  const std::string refuse = fault(
      "cuCheckpointProcessCheckpoint:1=CUDA_ERROR_UNKNOWN,"
      "cuCheckpointProcessUnlock:1=CUDA_ERROR_UNKNOWN");
  const Finished finished = run_beside(refuse + pause("--json") + resume());
  EXPECT_TRUE(says(finished, "pause 1"));
  EXPECT_TRUE(says(finished, "\"done\": false"));
  EXPECT_TRUE(says(finished, "resume 0"));
  expect_all_right(finished);
}

class DeepResumeRefused : public DeepPause, public ::testing::WithParamInterface<const char*> {};

TEST_P(DeepResumeRefused, CanBeRepeated) {
  const std::string refuse = fault(std::string{GetParam()} + "=CUDA_ERROR_OPERATING_SYSTEM");
  const Finished finished = run_beside(pause() + refuse + resume("--json") + resume());
  EXPECT_TRUE(says(finished, "pause 0"));
  EXPECT_TRUE(says(finished, "resume 1"));
  EXPECT_TRUE(says(finished, "CUDA_ERROR_OPERATING_SYSTEM"));
  EXPECT_TRUE(says(finished, "resume 0"));
  expect_all_right(finished);
}

INSTANTIATE_TEST_SUITE_P(
    ByTheDriver, DeepResumeRefused,
    ::testing::Values("cuCheckpointProcessGetState:1", "cuCheckpointProcessGetState:2",
                      "cuCheckpointProcessRestore:1", "cuCheckpointProcessGetState:3",
                      "cuCheckpointProcessUnlock:1", "cuCheckpointProcessGetState:4"),
    name_of_call);

class DeepPauseKilled : public DeepPause, public ::testing::WithParamInterface<const char*> {};

TEST_P(DeepPauseKilled, AResumeGoesOnFromThere) {
  const Finished finished = run_beside(killed_after(GetParam(), "pause --deep") + resume());
  EXPECT_TRUE(says(finished, "killed 137"));
  EXPECT_TRUE(says(finished, "resume 0"));
  expect_all_right(finished);
}

TEST_P(DeepPauseKilled, AnotherDeepPauseGoesOnFromThere) {
  const Finished finished =
      run_beside(killed_after(GetParam(), "pause --deep") + pause() + resume());
  EXPECT_TRUE(says(finished, "killed 137"));
  EXPECT_TRUE(says(finished, "pause 0"));
  EXPECT_TRUE(says(finished, "resume 0"));
  expect_all_right(finished);
}

// After the checkpoint, nobody has told the program that it is off the card.
INSTANTIATE_TEST_SUITE_P(After, DeepPauseKilled,
                         ::testing::Values("cuCheckpointProcessGetState:1",
                                           "cuCheckpointProcessLock:1",
                                           "cuCheckpointProcessCheckpoint:1"),
                         name_of_call);

TEST_F(DeepPause, AResumeAfterAKillBehindTheCheckpointSaysThatItIsBack) {
  const Finished finished =
      run_beside(killed_after("cuCheckpointProcessCheckpoint:1", "pause --deep") + resume());
  EXPECT_TRUE(says(finished, "killed 137"));
  EXPECT_TRUE(says(finished, "back on the device"));
  expect_all_right(finished);
}

class DeepResumeKilled : public DeepPause, public ::testing::WithParamInterface<const char*> {};

TEST_P(DeepResumeKilled, AnotherResumeGoesOnFromThere) {
  const Finished finished = run_beside(pause() + killed_after(GetParam(), "resume") + resume());
  EXPECT_TRUE(says(finished, "pause 0"));
  EXPECT_TRUE(says(finished, "killed 137"));
  EXPECT_TRUE(says(finished, "resume 0"));
  expect_all_right(finished);
}

INSTANTIATE_TEST_SUITE_P(After, DeepResumeKilled,
                         ::testing::Values("cuCheckpointProcessGetState:1",
                                           "cuCheckpointProcessRestore:1",
                                           "cuCheckpointProcessGetState:3",
                                           "cuCheckpointProcessUnlock:1",
                                           "cuCheckpointProcessGetState:4"),
                         name_of_call);

// What it needs on the card is known, though the command that took it off died first.
TEST_F(DeepPause, WithoutRoomAfterAKillTheDriverIsNotAskedToRestore) {
  const Finished finished =
      run_beside(killed_after("cuCheckpointProcessCheckpoint:1", "pause --deep") + take_the_card() +
                 resume() + "wait $other\n" + resume());
  EXPECT_TRUE(says(finished, "resume 1"));
  EXPECT_NE(finished.err.find("has no room"), std::string::npos) << finished.err;
  EXPECT_TRUE(says(finished, "resume 0"));
  expect_all_right(finished);
}

TEST_F(DeepPause, AResumeWaitsForADeepPauseUnderWay) {
  const Finished finished =
      run_beside("{ VMM_SIM_DELAY=cuCheckpointProcessCheckpoint=3s " + pause() + "} & helper=$!\n" +
                 until("[ -e $XDG_RUNTIME_DIR/cuvmm/checkpoints.lock ]") + "sleep 1\n" + resume() +
                 "wait $helper\n");
  EXPECT_TRUE(says(finished, "pause 0"));
  EXPECT_TRUE(says(finished, "back on the device"));
  EXPECT_TRUE(says(finished, "resume 0"));
  expect_all_right(finished);
}

// Lets the driver say that it has lost the first process that it takes off the card. Creates a file
// once it has.
class LosesAProcess {
 public:
  LosesAProcess(std::string path, std::string told)
      : path_(std::move(path)), told_(std::move(told)), thread_([this] { lose(); }) {}
  ~LosesAProcess() {
    ends_ = true;
    thread_.join();
  }

 private:
  void lose() {
    sim::CardBooks* books = nullptr;
    for (; !ends_; ::usleep(1000)) {
      if (books == nullptr) books = map();
      if (books == nullptr) continue;
      for (sim::CardMember& member : books->members) {
        std::uint32_t seen = CU_PROCESS_STATE_CHECKPOINTED;
        if (member.checkpoint.compare_exchange_strong(seen, CU_PROCESS_STATE_FAILED)) {
          std::ofstream{told_};
        }
      }
    }
    if (books != nullptr) ::munmap(books, sizeof *books);
  }
  sim::CardBooks* map() const {
    const int file = ::open(path_.c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) return nullptr;
    struct stat facts {};
    const bool is_whole =
        ::fstat(file, &facts) == 0 && facts.st_size >= static_cast<off_t>(sizeof(sim::CardBooks));
    void* const books = is_whole ? ::mmap(nullptr, sizeof(sim::CardBooks), PROT_READ | PROT_WRITE,
                                          MAP_SHARED, file, 0)
                                 : MAP_FAILED;
    ::close(file);
    return books == MAP_FAILED ? nullptr : static_cast<sim::CardBooks*>(books);
  }

  const std::string path_;
  const std::string told_;
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

TEST_F(DeepPause, AProcessThatTheDriverLostIsSaidToBeLost) {
  const LosesAProcess loses{file(), own_folder() + "/lost"};
  const Finished finished = run_beside(pause() + until("[ -e $XDG_RUNTIME_DIR/lost ]") + resume() +
                                       pause() + "kill -9 $program\n");
  EXPECT_TRUE(says(finished, "pause 0"));
  EXPECT_TRUE(says(finished, "resume 1"));
  EXPECT_TRUE(says(finished, "pause 1"));
  EXPECT_NE(finished.err.find("CU_PROCESS_STATE_FAILED"), std::string::npos) << finished.err;
}

// A driver that lacks room during a restore may never restore the process.
TEST_F(DeepPause, WithoutRoomTheDriverIsNotAskedToRestore) {
  const Finished finished = run_beside(
      pause() + take_the_card() + "VMM_SIM_FAULT=cuCheckpointProcessRestore:1=CUDA_ERROR_UNKNOWN " +
      resume() + "wait $other; cat $XDG_RUNTIME_DIR/other\n" + resume());
  EXPECT_TRUE(says(finished, "pause 0"));
  EXPECT_TRUE(says(finished, "resume 1"));
  EXPECT_NE(finished.err.find("has no room"), std::string::npos) << finished.err;
  EXPECT_TRUE(says(finished, "resume 0"));
  EXPECT_TRUE(says(finished, "all 25 steps"));
  expect_all_right(finished);
}

TEST_F(DeepPause, ALockedProcessOfAnotherToolIsLeftAlone) {
  const Finished finished =
      run_beside(cli() + " pause $program\n" +
                 fault("cuCheckpointProcessLock:1=CUDA_ERROR_ILLEGAL_STATE") + pause() + resume());
  EXPECT_TRUE(says(finished, "pause " + std::to_string(paused_on_devices)));
  EXPECT_TRUE(says(finished, "resume 0"));
  expect_all_right(finished);
}

TEST_F(DeepPause, AKilledProgramLeavesNothing) {
  const Finished finished =
      run_beside(pause() + "kill -9 $program\nwait $runner\n" + resume() + on_card() + "-- " +
                 example("take_turns") + " --mib 128 --steps 2");
  EXPECT_TRUE(says(finished, "pause 0"));
  EXPECT_TRUE(says(finished, "resume 1"));
  EXPECT_TRUE(says(finished, "all 2 steps"));
}

}  // namespace
}  // namespace cuvmm::test
