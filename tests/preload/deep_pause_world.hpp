// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "preload/run_program.hpp"

namespace cuvmm::test {

inline constexpr const char* all_right = " steps read back what they wrote";
inline constexpr int paused_on_devices = 3;

// A program on a card that it shares, under cuvmm in the background, as $program, and the commands
// that a script then runs beside it. The card has 128 MiB: the program has 32 MiB that cuvmm
// serves, and an array of 16 MiB that it does not. It runs until the script is over.
class DeepPause : public ::testing::Test {
 protected:
  void TearDown() override { ::unlink(file().c_str()); }
  std::string file() const {
    return "/dev/shm/cuvmm-sim-card-" + std::to_string(::geteuid()) + "-" + card_;
  }

  Finished run_beside(const std::string& script, const std::string& steps = "20 30",
                      const std::string& more = "") {
    const std::string place = own_folder();
    const std::string start = on_card() + "--control -- " + program("array") + " " + steps + " " +
                              place + " & runner=$!\n" + until("[ -e " + place + "/holds ]") +
                              "program=$(ls " + place +
                              "/cuvmm | sed -n 's/^control-\\([0-9]*\\)-[0-9]*$/\\1/p')\n";
    const std::string end = "\ntouch " + place + "/ends; wait $runner && echo ended well";
    return run_program({"sh", "-c", more + start + script + end}, {{"XDG_RUNTIME_DIR", place}});
  }
  // Waits for a condition of the shell's.
  static std::string until(const std::string& condition) {
    return "for i in $(seq 1000); do " + condition + " && break; sleep 0.05; done\n";
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
  // By another program, $other, which has all of it for a few seconds.
  std::string take_the_card() const {
    return on_card() + "-- " + example("take_turns") +
           " --mib 128 --steps 25 --rest 200 >$XDG_RUNTIME_DIR/other & other=$!\n" +
           until("[ -s $XDG_RUNTIME_DIR/other ]");
  }
  static std::string fault(const std::string& fault) { return "VMM_SIM_FAULT=" + fault + " "; }
  // Kills the command as the call returns, for example "cuCheckpointProcessLock:1".
  static std::string killed_after(const std::string& call, const std::string& command) {
    return fault(call + "=SIGKILL") + cli() + " " + command + " $program; echo \"killed $?\"\n";
  }
  static void expect_all_right(const Finished& finished) {
    EXPECT_TRUE(says(finished, all_right)) << finished.err;
    EXPECT_TRUE(says(finished, "ended well")) << finished.err;
  }

 private:
  const std::string card_ = "deep-" + std::to_string(::getpid());
};

}  // namespace cuvmm::test
