// SPDX-License-Identifier: Apache-2.0
// cuvmm pause --deep, and the resume after it, with a driver that fails and helpers that die.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>

#include "driver/cuda.hpp"
#include "preload/run_program.hpp"
#include "sim/card/books.hpp"

namespace cuvmm::test {
namespace {

constexpr const char* all_right = " steps found what they had written";
constexpr int paused_on_devices = 3;

// A program on a card that it shares, under cuvmm in the background, as $program, and the commands
// that a script then runs beside it. The card has 128 MiB: the program has 32 MiB that cuvmm
// serves, and an array of 16 MiB that it does not.
class DeepPause : public ::testing::Test {
 protected:
  void TearDown() override { ::unlink(file().c_str()); }
  std::string file() const {
    return "/dev/shm/cuvmm-sim-card-" + std::to_string(::geteuid()) + "-" + card_;
  }

  Finished run_beside(const std::string& script, const std::string& steps = "40 10",
                      const std::string& more = "") {
    const std::string start =
        on_card() + "--control -- " + program("array") + " " + steps + " & runner=$!\n" +
        "for i in $(seq 200); do\n"
        "  program=$(ls " +
        own_folder() +
        "/cuvmm 2>/dev/null | sed -n 's/^control-\\([0-9]*\\)-[0-9]*$/\\1/p')\n"
        "  [ -n \"$program\" ] && break; sleep 0.05\n"
        "done\nsleep 0.2\n";
    return run_program({"sh", "-c", more + start + script + "\nwait $runner && echo ended well"},
                       {{"XDG_RUNTIME_DIR", own_folder()}});
  }
  const std::string& card() const { return card_; }
  static std::string daemon() { return cli() + "d"; }
  std::string on_card() const { return cli() + " run --sim=memory=128M,card=" + card_ + " "; }
  static std::string pause(const std::string& more = "") {
    return cli() + " pause --deep $program " + more + "; echo \"pause $?\"\n";
  }
  static std::string resume(const std::string& more = "") {
    return cli() + " resume $program " + more + "; echo \"resume $?\"\n";
  }
  static std::string fault(const std::string& fault) { return "VMM_SIM_FAULT=" + fault + " "; }
  // Kills the command while it is about to make the call.
  static std::string killed_at(const std::string& call, const std::string& command) {
    return "VMM_SIM_DELAY=" + call + "=5s " + cli() + " " + command +
           " $program & helper=$!; sleep 0.5; kill -9 $helper; wait $helper; echo \"killed $?\"\n";
  }
  static void expect_all_right(const Finished& finished) {
    EXPECT_TRUE(says(finished, all_right)) << finished.err;
    EXPECT_TRUE(says(finished, "ended well")) << finished.err;
  }

 private:
  const std::string card_ = "deep-" + std::to_string(::getpid());
};

TEST_F(DeepPause, EverythingLeavesTheCardAndComesBack) {
  const Finished finished = run_beside(pause("--json") + "sleep 0.2\n" + resume("--json"));
  EXPECT_TRUE(says(finished, "pause 0"));
  EXPECT_TRUE(says(finished, "\"off_devices\": true"));
  EXPECT_TRUE(says(finished, "\"left_bytes\": 16777216"));
  EXPECT_TRUE(says(finished, "resume 0"));
  EXPECT_TRUE(says(finished, "\"off_devices\": false"));
  expect_all_right(finished);
}

TEST_F(DeepPause, OfAllTakesEachOffItsOwnCard) {
  const std::string other = file() + "-other";
  const auto start = [&](const std::string& more) {
    return cli() + " run --sim=memory=128M,card=" + card() + more + " --control -- " +
           program("array") + " 40 10 &\n";
  };
  const Finished finished =
      run_program({"sh", "-c",
                   start("") + start("-other") + "for i in $(seq 200); do\n  [ $(" + cli() +
                       " pause --list | wc -l) = 2 ] && break; sleep 0.05\ndone\nsleep 0.2\n" +
                       cli() + " pause --deep --all --json; echo \"pause $?\"\n" + cli() +
                       " resume --all; echo \"resume $?\"\nwait\n"},
                  {{"XDG_RUNTIME_DIR", own_folder()}});
  ::unlink(other.c_str());
  EXPECT_TRUE(says(finished, "pause 0")) << finished.err;
  EXPECT_EQ(finished.out.find("\"off_devices\": false"), std::string::npos) << finished.out;
  const auto first = finished.out.find("\"off_devices\": true");
  EXPECT_NE(finished.out.find("\"off_devices\": true", first + 1), std::string::npos)
      << finished.out;
  EXPECT_TRUE(says(finished, "resume 0")) << finished.err;
}

TEST_F(DeepPause, MayHappenAgain) {
  const Finished finished =
      run_beside(pause() + resume() + pause() + resume() + pause() + resume());
  EXPECT_EQ(finished.out.find("pause 1"), std::string::npos) << finished.err;
  EXPECT_TRUE(says(finished, "back on the device"));
  expect_all_right(finished);
}

TEST_F(DeepPause, OfAPausedProgramTakesTheRestOff) {
  const Finished finished =
      run_beside(cli() + " pause $program\n" + pause() + pause("--json") + resume());
  EXPECT_TRUE(says(finished, "off the device: 16.0 MiB of contexts and modules"));
  EXPECT_TRUE(says(finished, "\"left_bytes\": 16777216"));
  EXPECT_EQ(finished.out.find("pause 3"), std::string::npos) << finished.out;
  expect_all_right(finished);
}

// So that nothing in the program calls the driver, whose calls would block.
TEST_F(DeepPause, TheControlSocketStillAnswers) {
  const Finished finished =
      run_beside(pause() + "timeout 5 " + cli() + " pause $program --json; echo \"again $?\"\n" +
                 "timeout 5 " + cli() + " pause --list >/dev/null; echo \"list $?\"\n" + resume());
  EXPECT_TRUE(says(finished, "again 0"));
  EXPECT_TRUE(says(finished, "list 0"));
  expect_all_right(finished);
}

// Prints "waits: NAME" for each thread of the program that waits for the driver's lock, several
// times over half a second. The lock is in the card's file.
constexpr const char* print_waiting_threads = R"(
card=$(grep cuvmm-sim-card /proc/$program/maps | head -1)
begin=0x${card%%-*}; end=${card#*-}; end=0x${end%% *}
for i in 1 2 3 4 5 6 7 8 9 10; do
  for thread in /proc/$program/task/*; do
    read -r name <$thread/comm
    read -r call word rest <$thread/syscall || call=unknown
    [ "$call" = 202 ] && [ $((word)) -ge $((begin)) ] && [ $((word)) -lt $((end)) ] &&
      echo "waits: $name"
    [ "$call" = unknown ] && echo "unknown"
  done
  sleep 0.05
done
)";

void expect_only_the_program_waits(const Finished& finished) {
  EXPECT_TRUE(says(finished, "waits: cuvmm_program_a"));
  EXPECT_EQ(finished.out.find("waits: cuvmm-"), std::string::npos) << finished.out;
}

TEST_F(DeepPause, NoThreadOfCuvmmsWaitsInTheDriver) {
  const Finished finished = run_beside(
      pause() + print_waiting_threads + resume(), "40 10",
      "export VMM_PAUSE_AHEAD=32M VMM_SPILL=host VMM_SCHEDULE=fifo VMM_CLIENT=program; ");
  if (finished.out.find("unknown") != std::string::npos) GTEST_SKIP() << "needs rights to trace";
  expect_only_the_program_waits(finished);
  expect_all_right(finished);
}

// A thread watches the program's work, of which the last marks may not have been looked at.
TEST_F(DeepPause, NoThreadThatSharesTimeWaitsInTheDriver) {
  const Finished finished = run_beside(
      pause() + print_waiting_threads + resume() + "kill $other $service; wait $other $service\n",
      "40 10",
      daemon() + " --sim=card=" + card() + ",memory=128M --time share & service=$!; sleep 0.5\n" +
          on_card() + "-- " + example("take_turns") +
          " --mib 32 --steps 100000 --rest 0 & other=$!\n");
  if (finished.out.find("unknown") != std::string::npos) GTEST_SKIP() << "needs rights to trace";
  expect_only_the_program_waits(finished);
  expect_all_right(finished);
}

TEST_F(DeepPause, TopShowsTheState) {
  const std::string top = cli() + " top -1 $program\n";
  const Finished finished = run_beside(top + pause() + top + cli() + " top --json $program\n" +
                                       resume() + "echo back\n" + top);
  EXPECT_TRUE(says(finished, "(paused, off the card) "));
  EXPECT_TRUE(says(finished, "\"off_devices\": true"));
  EXPECT_EQ(finished.out.find("(paused", finished.out.find("back\n")), std::string::npos);
  expect_all_right(finished);
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
    ::testing::Values(Refusal{"cuInit", "CUDA_ERROR_NO_DEVICE"},
                      Refusal{"cuCheckpointProcessGetState", "CUDA_ERROR_INVALID_VALUE"},
                      Refusal{"cuCheckpointProcessLock", "CUDA_ERROR_NOT_READY"},
                      Refusal{"cuCheckpointProcessCheckpoint", "CUDA_ERROR_NOT_SUPPORTED"}),
    [](const auto& refusal) { return refusal.param.call; });

TEST_F(DeepPause, OnAnOlderDriverIsAPlainPause) {
  const Finished finished = run_beside(pause() + resume(), "40 10", "export VMM_SIM_DRIVER=12.4; ");
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
    ::testing::Values("cuInit:1", "cuCheckpointProcessGetState:1", "cuCheckpointProcessGetState:2",
                      "cuCheckpointProcessRestore:1", "cuCheckpointProcessGetState:3",
                      "cuCheckpointProcessUnlock:1", "cuCheckpointProcessGetState:4"),
    [](const auto& call) {
      std::string name = call.param;
      std::replace(name.begin(), name.end(), ':', '_');
      return name;
    });

class DeepPauseKilled : public DeepPause, public ::testing::WithParamInterface<const char*> {};

TEST_P(DeepPauseKilled, AResumeGoesOnFromThere) {
  const Finished finished = run_beside(killed_at(GetParam(), "pause --deep") + resume());
  EXPECT_TRUE(says(finished, "killed 137"));
  EXPECT_TRUE(says(finished, "resume 0"));
  expect_all_right(finished);
}

TEST_P(DeepPauseKilled, AnotherDeepPauseGoesOnFromThere) {
  const Finished finished = run_beside(killed_at(GetParam(), "pause --deep") + pause() + resume());
  EXPECT_TRUE(says(finished, "killed 137"));
  EXPECT_TRUE(says(finished, "pause 0"));
  EXPECT_TRUE(says(finished, "resume 0"));
  expect_all_right(finished);
}

INSTANTIATE_TEST_SUITE_P(Before, DeepPauseKilled,
                         ::testing::Values("cuInit", "cuCheckpointProcessGetState",
                                           "cuCheckpointProcessLock",
                                           "cuCheckpointProcessCheckpoint"),
                         [](const auto& call) { return call.param; });

// The program is stopped, so that the command cannot tell it that it is off the card.
TEST_F(DeepPause, AResumeGoesOnAfterAKillBehindTheCheckpoint) {
  const Finished finished =
      run_beside("VMM_SIM_DELAY=cuCheckpointProcessCheckpoint=600ms " + cli() +
                 " pause --deep $program & helper=$!; sleep 0.4; kill -STOP $program; sleep 0.8\n"
                 "kill -9 $helper; wait $helper; echo \"killed $?\"; kill -CONT $program\n" +
                 resume());
  EXPECT_TRUE(says(finished, "killed 137"));
  EXPECT_TRUE(says(finished, "back on the device"));
  expect_all_right(finished);
}

class DeepResumeKilled : public DeepPause, public ::testing::WithParamInterface<const char*> {};

TEST_P(DeepResumeKilled, AnotherResumeGoesOnFromThere) {
  const Finished finished = run_beside(pause() + killed_at(GetParam(), "resume") + resume());
  EXPECT_TRUE(says(finished, "pause 0"));
  EXPECT_TRUE(says(finished, "killed 137"));
  EXPECT_TRUE(says(finished, "resume 0"));
  expect_all_right(finished);
}

INSTANTIATE_TEST_SUITE_P(Before, DeepResumeKilled,
                         ::testing::Values("cuInit", "cuCheckpointProcessGetState",
                                           "cuCheckpointProcessRestore",
                                           "cuCheckpointProcessUnlock"),
                         [](const auto& call) { return call.param; });

// What it needs on the card is known, though the command that took it off died first.
TEST_F(DeepPause, WithoutRoomAfterAKillTheDriverIsNotAskedToRestore) {
  const Finished finished =
      run_beside("VMM_SIM_DELAY=cuCheckpointProcessCheckpoint=600ms " + cli() +
                 " pause --deep $program & helper=$!; sleep 0.4; kill -STOP $program; sleep 0.8\n"
                 "kill -9 $helper; wait $helper; kill -CONT $program\n" +
                 on_card() + "-- " + example("take_turns") +
                 " --mib 128 --steps 60 --rest 50 & other=$!; sleep 1\n" + resume() +
                 "wait $other\n" + resume());
  EXPECT_TRUE(says(finished, "resume 1"));
  EXPECT_NE(finished.err.find("has no room"), std::string::npos) << finished.err;
  EXPECT_TRUE(says(finished, "resume 0"));
  expect_all_right(finished);
}

TEST_F(DeepPause, AResumeWaitsForADeepPauseUnderWay) {
  const Finished finished =
      run_beside("{ VMM_SIM_DELAY=cuCheckpointProcessCheckpoint=800ms " + pause() +
                 "} & helper=$!; sleep 0.4\n" + resume() + "wait $helper\n");
  EXPECT_TRUE(says(finished, "pause 0"));
  EXPECT_TRUE(says(finished, "back on the device"));
  EXPECT_TRUE(says(finished, "resume 0"));
  expect_all_right(finished);
}

// Lets the driver say that it has lost the first process that it takes off the card.
class LosesAProcess {
 public:
  explicit LosesAProcess(std::string path) : path_(std::move(path)), thread_([this] { lose(); }) {}
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
        member.checkpoint.compare_exchange_strong(seen, CU_PROCESS_STATE_FAILED);
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
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

TEST_F(DeepPause, AProcessThatTheDriverLostIsSaidToBeLost) {
  const LosesAProcess loses{file()};
  const Finished finished =
      run_beside(pause() + "sleep 0.1\n" + resume() + pause() + "kill -9 $program\n");
  EXPECT_TRUE(says(finished, "pause 0"));
  EXPECT_TRUE(says(finished, "resume 1"));
  EXPECT_TRUE(says(finished, "pause 1"));
  EXPECT_NE(finished.err.find("CU_PROCESS_STATE_FAILED"), std::string::npos) << finished.err;
}

// A driver that lacks room during a restore may never restore the process.
TEST_F(DeepPause, WithoutRoomTheDriverIsNotAskedToRestore) {
  const Finished finished =
      run_beside(pause() + on_card() + "-- " + example("take_turns") +
                 " --mib 128 --steps 60 --rest 50 & other=$!; sleep 1\n"
                 "VMM_SIM_FAULT=cuCheckpointProcessRestore:1=CUDA_ERROR_UNKNOWN " +
                 resume() + "wait $other\n" + resume());
  EXPECT_TRUE(says(finished, "pause 0"));
  EXPECT_TRUE(says(finished, "resume 1"));
  EXPECT_NE(finished.err.find("has no room"), std::string::npos) << finished.err;
  EXPECT_TRUE(says(finished, "resume 0"));
  EXPECT_TRUE(says(finished, "all of 60 steps"));
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
  EXPECT_TRUE(says(finished, "all of 2 steps"));
}

}  // namespace
}  // namespace cuvmm::test
