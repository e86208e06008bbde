// SPDX-License-Identifier: Apache-2.0
// dlsym with us in the process: everybody finds what they would find without us.
#include <gtest/gtest.h>

#include "preload/run_program.hpp"
#include "preload/traces.hpp"

namespace cuvmm::test {
namespace {

std::string interposer() {
  return sim_directory() + "/../../libcuvmm_interposer.so";
}

TEST(Lookup, FindsWhatItFindsWithoutUs) {
  const Finished alone = run_program({program("lookup")}, natively());
  ASSERT_EQ(alone.status, 0) << alone.err;

  const Finished under = run_program({program("lookup")}, under_cuvmm());

  EXPECT_EQ(under.status, 0) << under.err;
  EXPECT_EQ(under.out, alone.out);
}

TEST(Lookup, LetsAnotherPreloadBeBeforeUs) {
  const std::string trace = own_folder() + "/run.trace";
  const Finished finished =
      run_program({program("memory_linked"), "linked"},
                  under_cuvmm({{"LD_PRELOAD", interposer() + ":" + preload_library()},
                               {"VMM_TRACE_FILE", trace}}));
  EXPECT_EQ(finished.status, 0) << finished.err;
  EXPECT_NE(finished.out.find("interposer: 1000 bytes"), std::string::npos) << finished.out;
  EXPECT_EQ(memory_events(trace).allocations, 9u);
}

TEST(Lookup, LetsAnotherPreloadBeAfterUs) {
  const std::string trace = own_folder() + "/run.trace";
  const Finished finished =
      run_program({program("memory_linked"), "linked"},
                  under_cuvmm({{"LD_PRELOAD", preload_library() + ":" + interposer()},
                               {"VMM_TRACE_FILE", trace}}));
  EXPECT_EQ(finished.status, 0) << finished.err;
  EXPECT_EQ(memory_events(trace).allocations, 9u);
}

}  // namespace
}  // namespace cuvmm::test
