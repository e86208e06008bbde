// SPDX-License-Identifier: Apache-2.0
// The example that grows a buffer, run as a user would run it, and its report at the end.
#include <gtest/gtest.h>

#include "preload/run_program.hpp"
#include "preload/traces.hpp"

namespace cuvmm::test {
namespace {

Finished resize_test(Variables variables) {
  variables.emplace("VMM_SIM_MEMORY", "2G");
  return run_program({example("resize_test"), "--largest", "512M"}, variables);
}

TEST(ResizeTest, CopiesNatively) {
  const Finished finished = resize_test(natively());
  EXPECT_EQ(finished.status, 0);
  EXPECT_TRUE(says(finished, "copied 480.00 MiB"));
  EXPECT_TRUE(says(finished, "physical peak 768.00 MiB"));
}

// With `auto`, small blocks are copied, since that is faster.
TEST(ResizeTest, CopiesNothingLargeUnderCuvmm) {
  const std::string trace = own_folder() + "/trace";
  const Finished finished = resize_test(under_cuvmm({{"VMM_TRACE_FILE", trace}}));
  EXPECT_EQ(finished.status, 0);
  EXPECT_TRUE(says(finished, "VMM_RESIZE=auto"));
  EXPECT_TRUE(says(finished, "copied 224.00 MiB"));
  EXPECT_TRUE(says(finished, "SUCCEEDED"));
  EXPECT_EQ(finished.err, "");
  const Finished stats = run_program({cli(), "stats", "--json", trace});
  EXPECT_TRUE(says(stats, "\"copies_elided\": 1"));
  EXPECT_TRUE(says(stats, "\"elided_bytes\": 268435456"));
  EXPECT_TRUE(says(stats, "\"run_copies_costs_more\": 3"));
}

TEST(ResizeTest, PeaksAtTheNewSizeOnAPromise) {
  const Finished finished = resize_test(under_cuvmm({{"VMM_RESIZE", "elide"}}));
  EXPECT_EQ(finished.status, 0);
  EXPECT_TRUE(says(finished, "copied 0.00 MiB"));
  EXPECT_TRUE(says(finished, "physical peak 512.00 MiB"));
}

TEST(ResizeTest, CopiesOnRequest) {
  const Finished finished = resize_test(under_cuvmm({{"VMM_RESIZE", "off"}}));
  EXPECT_EQ(finished.status, 0);
  EXPECT_TRUE(says(finished, "copied 480.00 MiB"));
}

// Memory may be registered by address with such a device, so it must not move.
TEST(ResizeTest, CopiesWhileADeviceThatReadsByAddressIsOpen) {
  const std::string with_device =
      "mount -t tmpfs none /dev && mkdir /dev/infiniband && : > /dev/null && "
      ": > /dev/infiniband/uverbs0 || exit 77; ";
  const auto run = [&](const std::string& before) {
    Variables variables = under_cuvmm({{"VMM_RESIZE", "elide"}});
    variables.emplace("VMM_SIM_MEMORY", "2G");
    return run_program({"unshare", "--mount", "sh", "-c",
                        with_device + before + example("resize_test") + " --largest 512M"},
                       variables);
  };
  const Finished closed = run("");
  if (closed.status != 0 && !says(closed, "physical peak")) {
    GTEST_SKIP() << "needs rights to have a /dev of its own";
  }
  EXPECT_TRUE(says(closed, "copied 0.00 MiB"));
  const Finished open = run("exec 9< /dev/infiniband/uverbs0; ");
  EXPECT_EQ(open.status, 0);
  EXPECT_TRUE(says(open, "copied 480.00 MiB"));
}

}  // namespace
}  // namespace cuvmm::test
