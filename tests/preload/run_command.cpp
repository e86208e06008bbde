// SPDX-License-Identifier: Apache-2.0
// cuvmm run: what a shell sees of it.
#include <gtest/gtest.h>

#include <csignal>

#include "preload/run_program.hpp"
#include "preload/traces.hpp"

namespace cuvmm::test {
namespace {

Finished run(const std::vector<std::string>& words, const Variables& variables = {}) {
  std::vector<std::string> command{cli(), "run"};
  command.insert(command.end(), words.begin(), words.end());
  return run_program(command, variables);
}

TEST(RunCommand, HandsOnTheExitStatus) {
  EXPECT_EQ(run({"--sim", "--", "sh", "-c", "exit 0"}).status, 0);
  EXPECT_EQ(run({"--sim", "--", "sh", "-c", "exit 7"}).status, 7);
}

TEST(RunCommand, SaysWhichSignalEndedTheProgram) {
  EXPECT_EQ(run({"--sim", "--", "sh", "-c", "kill -TERM $$"}).status, 128 + SIGTERM);
  EXPECT_EQ(run({"--sim", "--", "sh", "-c", "kill -KILL $$"}).status, 128 + SIGKILL);
}

TEST(RunCommand, HandsOnSignals) {
  const Finished finished = run({"--sim", "--", "sh", "-c",
                                 "trap 'echo got it; exit 9' USR1; kill -USR1 $PPID; "
                                 "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.1; done; exit 1"});
  EXPECT_EQ(finished.out, "got it\n");
  EXPECT_EQ(finished.status, 9);
}

TEST(RunCommand, SaysWhenThereIsNoSuchProgram) {
  EXPECT_EQ(run({"--sim", "--", "/nonexistent/program"}).status, 127);
}

TEST(RunCommand, SaysWhenTheProgramCannotBeExecuted) {
  EXPECT_EQ(run({"--sim", "--", "/etc/passwd"}).status, 126);
}

TEST(RunCommand, RefusesWrongUsage) {
  EXPECT_EQ(run({}).status, 2);
  EXPECT_EQ(run({"--no-such-option", "--", "true"}).status, 2);
  EXPECT_EQ(run({"--mode", "sideways", "--", "true"}).status, 2);
  EXPECT_EQ(run({"--limit", "-5G", "--", "true"}).status, 2);
  EXPECT_EQ(run({"--sim=devices=many", "--", "true"}).status, 2);
}

TEST(RunCommand, NamesTheOptionThatItRefuses) {
  const Finished finished = run({"--mode", "sideways", "--", "true"});
  EXPECT_NE(finished.err.find("VMM_MODE"), std::string::npos) << finished.err;
  EXPECT_NE(finished.err.find("sideways"), std::string::npos) << finished.err;
}

TEST(RunCommand, KeepsWhatIsPreloadedAlready) {
  const Finished finished =
      run({"--sim", "--", "sh", "-c", "echo $LD_PRELOAD"}, {{"LD_PRELOAD", "libm.so.6"}});
  EXPECT_EQ(finished.out, preload_library() + ":libm.so.6\n");
}

TEST(RunCommand, SetsOptionsByTheirNames) {
  const Finished finished =
      run({"--sim=devices=2,memory=1G", "--limit", "512M", "--log-level", "info", "--", "sh", "-c",
           "echo $VMM_SIM_DEVICES $VMM_SIM_MEMORY $VMM_LIMIT $VMM_LOG_LEVEL"});
  EXPECT_EQ(finished.out, "2 1G 512M info\n");
  EXPECT_EQ(finished.err, "cuvmm: VMM_LIMIT has no effect in this version\n");
}

TEST(RunCommand, RunsAProgramAndRecordsIt) {
  const std::string here = own_folder() + "/run.trace";
  const Finished finished =
      run({"--sim", "--mode", "monitor", "--trace", here, "--", program("memory"), "dlsym"});
  ASSERT_EQ(finished.status, 0) << finished.err;
  EXPECT_EQ(memory_events(here).allocations, 9u);
  const Finished stats = run_program({cli(), "stats", "--json", here});
  EXPECT_EQ(stats.status, 0) << stats.err;
  EXPECT_NE(stats.out.find("\"allocations\": 9"), std::string::npos) << stats.out;
}

TEST(RunCommand, ReachesTheChildrenOfAShell) {
  const std::string trace = own_folder() + "/run.trace";
  const Finished finished =
      run({"--sim", "--trace", trace, "--", "sh", "-c", program("memory") + " dlsym | wc -l"});
  ASSERT_EQ(finished.status, 0) << finished.err;
  EXPECT_EQ(memory_events(trace).allocations, 9u);
}

TEST(ConfigCommand, ShowsWhereAValueCameFrom) {
  const Finished finished = run_program({cli(), "config"}, {{"VMM_LIMIT", "3G"}});
  EXPECT_EQ(finished.status, 0);
  const auto at = finished.out.find("VMM_LIMIT");
  ASSERT_NE(at, std::string::npos);
  const std::string line = finished.out.substr(at, finished.out.find('\n', at) - at);
  EXPECT_NE(line.find("3G"), std::string::npos) << line;
  EXPECT_NE(line.find("environment"), std::string::npos) << line;
}

TEST(ConfigCommand, SaysWhatIsWrongAndExitsWithTwo) {
  const Finished finished = run_program({cli(), "config"}, {{"VMM_MODE", "sideways"}});
  EXPECT_EQ(finished.status, 2);
  EXPECT_NE(finished.err.find("VMM_MODE"), std::string::npos);
}

TEST(StatsCommand, RefusesWhatIsNoTrace) {
  const Finished finished = run_program({cli(), "stats", "/etc/passwd"});
  EXPECT_EQ(finished.status, 1);
  EXPECT_NE(finished.err.find("/etc/passwd"), std::string::npos);
}

}  // namespace
}  // namespace cuvmm::test
