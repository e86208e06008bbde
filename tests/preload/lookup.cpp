// SPDX-License-Identifier: Apache-2.0
// dlsym with cuvmm in the process: every caller finds what it would find without cuvmm.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "preload/run_program.hpp"
#include "preload/traces.hpp"

namespace cuvmm::test {
namespace {

TEST(Lookup, FindsWhatItFindsWithoutUs) {
  const Finished alone = run_program({program("lookup")}, natively());
  ASSERT_EQ(alone.status, 0) << alone.err;

  const Finished under = run_program({program("lookup")}, under_cuvmm());

  EXPECT_EQ(under.status, 0) << under.err;
  EXPECT_EQ(under.out, alone.out);
}

// The loader would find our doors for functions that the driver does not have.
TEST(Lookup, FindsByDefaultOnlyWhatTheDriverHas) {
  const Variables lacking{
      {"LD_LIBRARY_PATH", sim_directory() + "/../../../tests/programs/lacking"}};
  const Finished alone = run_program({program("lookup"), "driver"}, lacking);
  ASSERT_NE(alone.out.find("cuMemCreate              not found"), std::string::npos) << alone.out;
  EXPECT_EQ(run_program({program("lookup"), "driver"}, under_cuvmm(lacking)).out, alone.out);
}

// Without a driver, a library with functions of the driver's names is all that the program has.
TEST(Lookup, LeavesAnotherLibraryWithTheDriversFunctionsToTheProgram) {
  if (void* const driver = dlopen("libcuda.so.1", RTLD_LAZY)) {
    dlclose(driver);
    GTEST_SKIP() << "this machine has a driver";
  }
  const Finished alone = run_program({program("mock")});
  ASSERT_EQ(alone.status, 0) << alone.err;
  ASSERT_TRUE(says(alone, "linked: 4242"));
  for (const char* const mode : {"VMM", "MONITOR", "OFF"}) {
    for (const std::string& library : {preload_library(), stub_library()}) {
      const Finished under =
          run_program({program("mock")}, {{"LD_PRELOAD", library}, {"VMM_MODE", mode}});
      EXPECT_EQ(under.status, 0) << under.err;
      EXPECT_EQ(under.out, alone.out) << mode << " with " << library;
    }
  }
}

TEST(Lookup, OfNvmlOutlivesTheProgramsHandle) {
  const std::vector<std::string> command{program("nvml_reload"), library_of_programs("nvml_user")};
  const Finished alone = run_program(command, natively());
  ASSERT_EQ(alone.status, 0) << alone.err;

  const Finished under = run_program(command, under_cuvmm());

  EXPECT_EQ(under.status, 0) << under.err;
  EXPECT_EQ(under.out, alone.out);
}

TEST(Lookup, FromManyThreadsFindsEverythingAndRecordsEverything) {
  const std::string trace = own_folder() + "/run.trace";
  const Finished finished = run_program(
      {program("threads")}, under_cuvmm({{"VMM_MODE", "MONITOR"}, {"VMM_TRACE_FILE", trace}}));
  EXPECT_EQ(finished.status, 0) << finished.out << finished.err;
  const MemoryEvents events = memory_events(trace);
  EXPECT_EQ(events.allocations, 64u * 20 * 2);
  EXPECT_EQ(events.frees, 64u * 20 * 2);
  EXPECT_TRUE(events.every_free_has_its_allocation);
}

}  // namespace
}  // namespace cuvmm::test
