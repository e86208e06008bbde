// SPDX-License-Identifier: Apache-2.0
// cuvmm pause --deep, and the resume after it.
#include <gtest/gtest.h>

#include <string>

#include "preload/deep_pause_world.hpp"

namespace cuvmm::test {
namespace {

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
  const std::string place = own_folder();
  const auto start = [&](const std::string& more) {
    const std::string folder = place + "/of" + more;
    return "mkdir " + folder + "; " + cli() + " run --sim=memory=128M,card=" + card() + more +
           " --control -- " + program("array") + " 20 30 " + folder + " &\n";
  };
  const Finished finished = run_program(
      {"sh", "-c",
       start("") + start("-other") + until("[ $(ls " + place + "/of*/holds | wc -l) = 2 ]") +
           cli() + " pause --deep --all --json; echo \"pause $?\"\n" + cli() +
           " resume --all; echo \"resume $?\"\ntouch " + place + "/of/ends " + place +
           "/of-other/ends; wait\n"},
      {{"XDG_RUNTIME_DIR", place}});
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
      run_beside(pause() + "timeout 30 " + cli() + " pause $program --json; echo \"again $?\"\n" +
                 "timeout 30 " + cli() + " pause --list >/dev/null; echo \"list $?\"\n" + resume());
  EXPECT_TRUE(says(finished, "again 0"));
  EXPECT_TRUE(says(finished, "list 0"));
  expect_all_right(finished);
}

// Prints "waits: NAME" for each thread of the program that waits for the driver's lock, several
// times over half a second from when the first does. The lock is in the card's file.
constexpr const char* print_waiting_threads = R"(
card=$(grep cuvmm-sim-card /proc/$program/maps | head -1)
begin=0x${card%%-*}; end=${card#*-}; end=0x${end%% *}
looks=0
for i in $(seq 200); do
  for thread in /proc/$program/task/*; do
    read -r name <$thread/comm
    read -r call word rest <$thread/syscall || call=unknown
    [ "$call" = 202 ] && [ $((word)) -ge $((begin)) ] && [ $((word)) -lt $((end)) ] &&
      echo "waits: $name" && [ $looks = 0 ] && looks=1
    [ "$call" = unknown ] && echo "unknown"
  done
  [ $looks = 0 ] || looks=$((looks + 1))
  [ $looks -gt 10 ] && break
  sleep 0.05
done
)";

void expect_only_the_program_waits(const Finished& finished) {
  EXPECT_TRUE(says(finished, "waits: cuvmm_program_a"));
  EXPECT_EQ(finished.out.find("waits: cuvmm-"), std::string::npos) << finished.out;
}

TEST_F(DeepPause, NoThreadOfCuvmmsWaitsInTheDriver) {
  const Finished finished = run_beside(
      pause() + print_waiting_threads + resume(), "20 30",
      "export VMM_PAUSE_AHEAD=32M VMM_SPILL=host VMM_SCHEDULE=fifo VMM_CLIENT=program; ");
  if (finished.out.find("unknown") != std::string::npos) GTEST_SKIP() << "needs rights to trace";
  expect_only_the_program_waits(finished);
  expect_all_right(finished);
}

// A thread watches the program's work, of which the last marks may not have been looked at.
TEST_F(DeepPause, NoThreadThatSharesTimeWaitsInTheDriver) {
  const Finished finished = run_beside(
      pause() + print_waiting_threads + resume() + "kill $other $service; wait $other $service\n",
      "20 30",
      daemon() + " --sim=card=" + card() + ",memory=128M --time share & service=$!; sleep 0.5\n" +
          on_card() + "-- " + example("take_turns") +
          " --mib 32 --steps 100000 --rest 0 & other=$!\n");
  if (finished.out.find("unknown") != std::string::npos) GTEST_SKIP() << "needs rights to trace";
  expect_only_the_program_waits(finished);
  expect_all_right(finished);
}

TEST_F(DeepPause, TopShowsTheState) {
  // On a busy machine it may answer `top` too late, which then says that it is silent.
  const auto until_top = [](const std::string& how, const std::string& shows) {
    return until(cli() + " top " + how + " $program | " + shows);
  };
  const Finished finished =
      run_beside(pause() + until_top("-1", "grep 'off the card'") +
                 until_top("--json", "grep '\"off_devices\": true'") + resume() + "echo back\n" +
                 until_top("-1", "grep -v -e PROCESS -e '(silent'"));
  EXPECT_TRUE(says(finished, "(paused, off the card) "));
  EXPECT_TRUE(says(finished, "\"off_devices\": true"));
  EXPECT_EQ(finished.out.find("(paused", finished.out.find("back\n")), std::string::npos);
  expect_all_right(finished);
}

}  // namespace
}  // namespace cuvmm::test
