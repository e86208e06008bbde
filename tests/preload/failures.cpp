// SPDX-License-Identifier: Apache-2.0
// Whatever fails in cuvmm, the program runs as it does without it, and one line says why.
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "preload/run_program.hpp"
#include "preload/traces.hpp"

namespace cuvmm::test {
namespace {

namespace fs = std::filesystem;

// memory_program prints what it read back from memory, so equal output means equal answers.
const std::string& output_alone() {
  static const std::string output = run_program({program("memory"), "dlsym"}, natively()).out;
  return output;
}

void expect_native_run_with_one_line(const Finished& finished, const std::string& about) {
  EXPECT_EQ(finished.status, 0) << finished.err;
  EXPECT_EQ(finished.out, output_alone());
  EXPECT_EQ(lines_in(finished.err), 1u) << finished.err;
  EXPECT_NE(finished.err.find(about), std::string::npos) << finished.err;
}

Finished run_memory(const Variables& variables) {
  return run_program({program("memory"), "dlsym"}, under_cuvmm(variables));
}

TEST(Failure, ToCreateTheTrace) {
  expect_native_run_with_one_line(run_memory({{"VMM_TRACE_FILE", "/nonexistent/run.trace"}}),
                                  "trace");
}

TEST(Failure, ToReadAnOption) {
  expect_native_run_with_one_line(run_memory({{"VMM_LIMIT", "much"}}), "VMM_LIMIT");
}

TEST(Failure, ToReadSeveralOptionsTakesALineEach) {
  const Finished finished = run_memory({{"VMM_LIMIT", "much"}, {"VMM_MODE", "sideways"}});
  EXPECT_EQ(finished.status, 0);
  EXPECT_EQ(lines_in(finished.err), 2u) << finished.err;
}

TEST(Failure, ToOpenTheLog) {
  expect_native_run_with_one_line(run_memory({{"VMM_LOG_FILE", "/nonexistent/run.log"}}), "log");
}

// Every write to it fails.
TEST(Failure, OfTheDiskThatTheTraceIsOn) {
  expect_native_run_with_one_line(run_memory({{"VMM_TRACE_FILE", "/dev/full"}}), "trace");
}

TEST(Failure, OfTheDiskThatTheLogIsOn) {
  for (const char* level : {"INFO", "DEBUG"}) {
    expect_native_run_with_one_line(
        run_memory({{"VMM_LOG_FILE", "/dev/full"}, {"VMM_LOG_LEVEL", level}}), "log file lost");
  }
}

// Without VMM_SIM_BACKING=none, the limit would also hit the simulated driver's memory, which is a
// file.
TEST(Failure, OfALimitOnTheSizeOfFilesEndsTheTraceAndNotTheProgram) {
  const std::string trace = own_folder() + "/run.trace";
  const Finished finished = run_program(
      {"sh", "-c", "ulimit -f 40; exec " + program("threads")},
      under_cuvmm(
          {{"VMM_MODE", "MONITOR"}, {"VMM_TRACE_FILE", trace}, {"VMM_SIM_BACKING", "none"}}));
  EXPECT_EQ(finished.status, 0) << finished.err;
  EXPECT_EQ(finished.out, "0 failures\n");
  EXPECT_EQ(lines_in(finished.err), 1u) << finished.err;
  EXPECT_NE(finished.err.find("ends here"), std::string::npos) << finished.err;
  const Finished stats = run_program({cli(), "stats", trace});
  EXPECT_EQ(stats.status, 0) << stats.err;
}

TEST(Failure, OfAFullDiskEndsTheTraceAndNotTheProgram) {
  const std::string folder = own_folder();
  if (mount("cuvmm-test", folder.c_str(), "tmpfs", 0, "size=64k") != 0) {
    GTEST_SKIP() << "a small disk needs the right to mount one";
  }
  const std::string trace = folder + "/run.trace";
  const Finished finished = run_program(
      {program("threads")}, under_cuvmm({{"VMM_MODE", "MONITOR"}, {"VMM_TRACE_FILE", trace}}));
  const Finished stats = run_program({cli(), "stats", trace});
  umount(folder.c_str());
  EXPECT_EQ(finished.status, 0) << finished.err;
  EXPECT_EQ(lines_in(finished.err), 1u) << finished.err;
  EXPECT_NE(finished.err.find("ends here"), std::string::npos) << finished.err;
  EXPECT_EQ(stats.status, 0) << stats.err;
}

// cuvmm makes this call at its start and programs hardly ever do. Only cuvmm's call is refused; the
// program would notice a refusal of its own.
TEST(Failure, OfOurFirstDriverCall) {
  expect_native_run_with_one_line(
      run_memory({{"VMM_SIM_FAULT", "cuDriverGetVersion:1=CUDA_ERROR_NOT_INITIALIZED"}}),
      "runs without cuvmm");
}

TEST(Failure, OfOurFirstCallIsOneLineOverAllThreads) {
  const Finished finished = run_program(
      {program("threads")},
      under_cuvmm({{"VMM_SIM_FAULT", "cuDriverGetVersion:1=CUDA_ERROR_NOT_INITIALIZED"}}));
  EXPECT_EQ(finished.status, 0);
  EXPECT_EQ(finished.out, "0 failures\n");
  EXPECT_LE(lines_in(finished.err), 1u) << finished.err;
}

TEST(Failure, ToDescribeDevicesDoesNotMatter) {
  const std::string trace = own_folder() + "/run.trace";
  const Finished finished = run_memory({{"VMM_MODE", "MONITOR"},
                                        {"VMM_TRACE_FILE", trace},
                                        {"VMM_SIM_FAULT", "cuDeviceGetName:1=CUDA_ERROR_UNKNOWN"}});
  EXPECT_EQ(finished.status, 0) << finished.err;
  EXPECT_EQ(finished.out, output_alone());
  EXPECT_EQ(memory_events(trace).allocations, 12u);
}

// A driver too old for cuvmm is still the program's driver.
TEST(Failure, OfADriverThatIsTooOldForUs) {
  const Variables old = {{"VMM_SIM_DRIVER", "10.2"}};
  Variables alone_with_old = natively();
  alone_with_old.insert(old.begin(), old.end());
  const Finished alone = run_program({program("life"), "plain"}, alone_with_old);
  const Finished finished = run_program({program("life"), "plain"}, under_cuvmm(old));
  EXPECT_EQ(finished.status, alone.status) << finished.err;
  EXPECT_EQ(finished.out, alone.out);
}

TEST(Failure, OfAMissingDriverIsThePrograms) {
  const Variables without = {{"LD_PRELOAD", preload_library()}};
  const Finished alone = run_program({program("memory"), "dlsym"});
  if (alone.status == 0) GTEST_SKIP() << "this machine has a driver";
  const Finished finished = run_program({program("memory"), "dlsym"}, without);
  EXPECT_EQ(finished.status, alone.status);
  EXPECT_EQ(finished.out, alone.out);
  EXPECT_EQ(finished.err, alone.err);
}

class FileOfOurs : public ::testing::TestWithParam<const char*> {
 protected:
  std::string here() const { return folder_ + "/file"; }
  Variables writing_to(const std::string& path) const {
    return {{GetParam(), path}, {"VMM_LOG_LEVEL", "INFO"}, {"VMM_MODE", "MONITOR"}};
  }
  const std::string folder_ = own_folder();
};

TEST_P(FileOfOurs, IsPrivateToItsOwner) {
  EXPECT_EQ(run_memory(writing_to(here())).status, 0);
  struct stat facts {};
  ASSERT_EQ(stat(here().c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600u);
  EXPECT_GT(facts.st_size, 0);
}

TEST_P(FileOfOurs, IsNeverWhatASymbolicLinkPointsTo) {
  const std::string other = folder_ + "/precious";
  std::ofstream{other} << "kept";
  fs::create_symlink(other, here());
  const Finished finished = run_memory(writing_to(here()));
  EXPECT_EQ(finished.status, 0) << finished.err;
  EXPECT_EQ(finished.out, output_alone());
  EXPECT_NE(finished.err.find("WARNING"), std::string::npos) << finished.err;
  EXPECT_EQ(fs::file_size(other), 4u);
}

TEST_P(FileOfOurs, IsNeverAPipeThatNobodyReads) {
  ASSERT_EQ(mkfifo(here().c_str(), 0600), 0);
  const Finished finished = run_memory(writing_to(here()));
  EXPECT_EQ(finished.status, 0) << finished.err;
  EXPECT_NE(finished.err.find("WARNING"), std::string::npos) << finished.err;
}

INSTANTIATE_TEST_SUITE_P(Kinds, FileOfOurs, ::testing::Values("VMM_TRACE_FILE", "VMM_LOG_FILE"),
                         [](const auto& kind) { return std::string{kind.param}; });

// A program that gets its rights from its file, and its environment from another user.
TEST(SecureExecution, LeavesEverythingToTheDriver) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make such a program";
  const fs::path folder = own_folder();
  const std::string copy = (folder / "program").string();
  fs::copy_file(program("secure"), copy);
  ASSERT_EQ(chmod(copy.c_str(), 04755), 0);
  const Variables variables = {{"VMM_TRACE_FILE", (folder / "run.trace").string()},
                               {"VMM_LOG_FILE", (folder / "run.log").string()},
                               {"VMM_LOG_LEVEL", "DEBUG"},
                               {"VMM_MODE", "MONITOR"}};

  const Finished finished =
      run_program({"setpriv", "--reuid", "65534", "--clear-groups", copy}, variables);

  if (finished.status == 127) GTEST_SKIP() << "there is no setpriv";
  if (finished.out.find("secure 1") == std::string::npos) {
    GTEST_SKIP() << "this file system takes no such program: " << finished.out << finished.err;
  }
  EXPECT_EQ(finished.status, 0) << finished.err;
  EXPECT_EQ(finished.err, "");
  EXPECT_EQ(std::distance(fs::directory_iterator{folder}, fs::directory_iterator{}), 1);
}

TEST(SecureExecution, IsWhatKeepsTheSameProgramSilent) {
  const fs::path folder = own_folder();
  const std::string trace = (folder / "run.trace").string();
  const Finished finished = run_program({program("secure")}, {{"VMM_TRACE_FILE", trace}});
  EXPECT_EQ(finished.out, "secure 0\n");
  EXPECT_EQ(memory_events(trace).allocations, 1u);
}

}  // namespace
}  // namespace cuvmm::test
