// SPDX-License-Identifier: Apache-2.0
// How processes begin, fork and end.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>

#include "preload/run_program.hpp"
#include "preload/traces.hpp"
#include "trace/reader.hpp"

namespace cuvmm::test {
namespace {

namespace fs = std::filesystem;

class Life : public ::testing::TestWithParam<const char*> {};

TEST_P(Life, EndsAsItDoesWithoutUs) {
  const std::string trace = own_folder() + "/run.trace";
  const Finished alone = run_program({program("life"), GetParam()}, natively());

  const Finished traced =
      run_program({program("life"), GetParam()}, under_cuvmm({{"VMM_TRACE_FILE", trace}}));

  EXPECT_EQ(traced.status, alone.status) << traced.err;
  EXPECT_EQ(traced.out, alone.out);
  EXPECT_EQ(traced.err, alone.err);
}

INSTANTIATE_TEST_SUITE_P(Ways, Life,
                         ::testing::Values("plain", "no-cuda", "keep", "atexit", "exit-in-thread",
                                           "fork", "fork-first", "fork-exec", "vfork-exec",
                                           "daemon", "crash", "dlclose", "begin-and-dlclose",
                                           "look-and-dlclose", "look-and-remove", "exit-busy",
                                           "exit-in-handler", "fork-busy", "fork-call-busy",
                                           "no-cuda-thread"),
                         [](const auto& way) {
                           std::string name = way.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST(LeakCheckedProgram, FindsNoLeaksOfOursInItsChildren) {
  const Finished alone = run_program({program("leak_checked")}, natively());
  if (alone.status != 5) GTEST_SKIP() << "leaks cannot be looked for here: " << alone.err;
  for (const char* mode : {"off", "monitor", "vmm"}) {
    const Finished finished =
        run_program({program("leak_checked")}, under_cuvmm({{"VMM_MODE", mode}}));
    EXPECT_EQ(finished.status, 5) << mode << ": " << finished.err;
  }
}

TEST(ScheduledProcess, LosesNoQueuedWorkWhenItEnds) {
  const Finished finished =
      run_program({program("life"), "exit-queued"},
                  under_cuvmm({{"VMM_SCHEDULE", "fifo"}, {"VMM_CLIENT", "all"}}));
  EXPECT_EQ(finished.status, 0);
  EXPECT_EQ(finished.out, "600 done at exit\n");
}

class FirstCalls : public ::testing::TestWithParam<const char*> {};

// A fork in the middle of other threads' first calls must leave nothing half done or locked.
TEST_P(FirstCalls, MayBeMadeByChildrenForkedDuringThem) {
  const auto command = [](const char* rounds) {
    return std::vector<std::string>{program("first_calls"), GetParam(), rounds};
  };
  const Finished alone = run_program(command("8"), natively());
  EXPECT_EQ(alone.status, 0) << alone.out << alone.err;
  const Finished finished =
      run_program(command("40"), under_cuvmm({{"VMM_CONTROL", "on"},
                                              {"VMM_TRACE_FILE", "/dev/null"},
                                              {"XDG_RUNTIME_DIR", own_folder()}}));
  EXPECT_EQ(finished.status, 0) << finished.out << finished.err;
}

INSTANTIATE_TEST_SUITE_P(Ways, FirstCalls, ::testing::Values("refused", "init"),
                         [](const auto& way) { return std::string{way.param}; });

TEST(FirstCall, IsWholeInAThreadThatHasBeenCancelled) {
  const Finished finished =
      run_program({program("life"), "start-cancelled"}, under_cuvmm({{"VMM_LIMIT", "64M"}}));
  EXPECT_EQ(finished.status, 0);
  EXPECT_EQ(finished.out, "2\n") << "the limit holds";
}

// A thread of ours would keep the process from ending.
TEST(ProcessThatOnlyQueries, HasNoThreadsOfOurs) {
  const Finished alone = run_program({program("life"), "query-only"}, natively());
  const Finished finished = run_program({program("life"), "query-only"}, under_cuvmm());
  EXPECT_EQ(finished.status, alone.status);
  EXPECT_EQ(finished.out, alone.out);
}

TEST(ControlledProcess, ClosesNoProgramFilesInItsChildren) {
  const Finished finished =
      run_program({program("life"), "close-all-fork"},
                  under_cuvmm({{"VMM_CONTROL", "on"}, {"XDG_RUNTIME_DIR", own_folder()}}));
  EXPECT_EQ(finished.status, 0) << finished.err;
}

TEST(ProcessWithoutCuda, LeavesNoTraceAndNoLog) {
  const std::string folder = own_folder();
  const Finished finished = run_program({program("life"), "no-cuda"},
                                        under_cuvmm({{"VMM_TRACE_FILE", folder + "/run.trace"},
                                                     {"VMM_LOG_LEVEL", "DEBUG"},
                                                     {"VMM_LOG_FILE", folder + "/run.log"}}));
  EXPECT_EQ(finished.status, 0);
  EXPECT_TRUE(finished.out.starts_with("1 threads")) << finished.out;
  EXPECT_TRUE(finished.out.ends_with("no driver\n")) << finished.out;
  EXPECT_EQ(finished.err, "");
  EXPECT_TRUE(fs::is_empty(folder));
}

TEST(TraceOfAProcess, EndsWithWhatWasRecordedWhenItCrashes) {
  const std::string trace = own_folder() + "/run.trace";
  const Finished finished =
      run_program({program("life"), "crash"}, under_cuvmm({{"VMM_TRACE_FILE", trace}}));
  EXPECT_EQ(finished.status, 128 + SIGABRT);
  EXPECT_TRUE(TraceReader::open(trace).ok());
}

TEST(TraceOfAProcess, IsPrivateToItsOwner) {
  const std::string trace = own_folder() + "/run.trace";
  run_program({program("life"), "plain"}, under_cuvmm({{"VMM_TRACE_FILE", trace}}));
  struct stat status {};
  ASSERT_EQ(stat(trace.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST(TraceOfAProcess, IsNotOverwrittenByThatOfItsChild) {
  const std::string folder = own_folder();
  run_program({program("life"), "fork-exec"},
              under_cuvmm({{"VMM_TRACE_FILE", folder + "/run.trace"}}));
  const auto files = std::distance(fs::directory_iterator{folder}, fs::directory_iterator{});
  EXPECT_EQ(files, 2);
  EXPECT_EQ(memory_events(folder + "/run.trace").allocations, 1u);
}

}  // namespace
}  // namespace cuvmm::test
