// SPDX-License-Identifier: Apache-2.0
// The example that grows a buffer, as a user starts it, and what it reports afterwards.
#include <gtest/gtest.h>

#include "preload/run_program.hpp"
#include "preload/traces.hpp"

namespace cuvmm::test {
namespace {

Finished resize_test(Variables variables) {
  variables.emplace("VMM_SIM_MEMORY", "4G");
  return run_program({example("resize_test"), "--largest", "1G"}, variables);
}

TEST(ResizeTest, CopiesNatively) {
  const Finished finished = resize_test(natively());
  EXPECT_EQ(finished.status, 0);
  EXPECT_TRUE(says(finished, "copied 960.00 MiB"));
  EXPECT_TRUE(says(finished, "physical peak 1536.00 MiB"));
}

// In `auto` what is small is copied, since that is faster.
TEST(ResizeTest, CopiesNothingLargeUnderCuvmm) {
  const std::string trace = own_folder() + "/trace";
  const Finished finished = resize_test(under_cuvmm({{"VMM_TRACE_FILE", trace}}));
  EXPECT_EQ(finished.status, 0);
  EXPECT_TRUE(says(finished, "VMM_RESIZE=auto"));
  EXPECT_TRUE(says(finished, "copied 192.00 MiB"));
  EXPECT_TRUE(says(finished, "SUCCEEDED"));
  EXPECT_EQ(finished.err, "");
  const Finished stats = run_program({cli(), "stats", "--json", trace});
  EXPECT_TRUE(says(stats, "\"copies_elided\": 2"));
  EXPECT_TRUE(says(stats, "\"elided_bytes\": 805306368"));
  EXPECT_TRUE(says(stats, "\"run_copies_costs_more\": 2"));
}

TEST(ResizeTest, PeaksAtTheNewSizeOnAPromise) {
  const Finished finished = resize_test(under_cuvmm({{"VMM_RESIZE", "elide"}}));
  EXPECT_EQ(finished.status, 0);
  EXPECT_TRUE(says(finished, "copied 0.00 MiB"));
  EXPECT_TRUE(says(finished, "physical peak 1024.00 MiB"));
}

TEST(ResizeTest, CopiesWhereThatIsAskedFor) {
  const Finished finished = resize_test(under_cuvmm({{"VMM_RESIZE", "off"}}));
  EXPECT_EQ(finished.status, 0);
  EXPECT_TRUE(says(finished, "copied 960.00 MiB"));
}

}  // namespace
}  // namespace cuvmm::test
