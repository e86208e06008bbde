// SPDX-License-Identifier: Apache-2.0
// The example that shows fragmentation, run as a user would run it.
#include <gtest/gtest.h>

#include <cstdlib>

#include "preload/run_program.hpp"
#include "preload/traces.hpp"

namespace cuvmm::test {
namespace {

Finished frag_test(std::vector<std::string> words, Variables variables) {
  words.insert(words.begin(), example("frag_test"));
  variables.emplace("VMM_SIM_MEMORY", "256M");
  return run_program(words, variables);
}

TEST(FragTest, FailsNativelyAndSaysSo) {
  const Finished finished = frag_test({}, natively());
  EXPECT_EQ(finished.status, 1);
  EXPECT_TRUE(says(finished, "cuMemAlloc and cuMemFree, native"));
  EXPECT_TRUE(says(finished, "512 blocks of 512 KiB"));
  EXPECT_TRUE(says(finished, "out of memory"));
  EXPECT_TRUE(says(finished, "256 of 256"));
  EXPECT_TRUE(says(finished, "FAILED: the memory is free, but cannot be allocated in one piece."));
}

TEST(FragTest, SucceedsUnderCuvmmAndSaysSo) {
  for (const char* block : {"512K", "100K", "1M", "3M"}) {
    SCOPED_TRACE(block);
    const Finished finished = frag_test({"--block", block}, under_cuvmm());
    EXPECT_EQ(finished.status, 0);
    EXPECT_TRUE(says(finished, "cuMemAlloc and cuMemFree, cuvmm, VMM_MODE=VMM"));
    EXPECT_TRUE(says(finished, "SUCCEEDED: what is free can be allocated in one piece."));
  }
}

// The bytes of a key of the windows' object; 0 if it is missing.
unsigned long long of_the_windows(const std::string& stats, const std::string& key) {
  const auto begin = stats.rfind('{', stats.find("blocking, windows"));
  const auto at = stats.find("\"" + key + "\": ", begin);
  if (begin == std::string::npos || at > stats.find('}', begin)) return 0;
  return std::strtoull(stats.c_str() + at + key.size() + 4, nullptr, 10);
}

TEST(FragTest, StatsShowArenaMemoryAndMoves) {
  const std::string trace = own_folder() + "/trace";
  const Finished finished = frag_test({}, under_cuvmm({{"VMM_TRACE_FILE", trace}}));
  EXPECT_EQ(finished.status, 0);
  const Finished stats = run_program({cli(), "stats", "--json", trace});
  EXPECT_EQ(of_the_windows(stats.out, "used_bytes"), 0U) << "all was freed at the end";
  EXPECT_GT(of_the_windows(stats.out, "free_bytes"), 128U << 20) << stats.out;
  EXPECT_GT(of_the_windows(stats.out, "compacted_bytes"), 16U << 20);
  EXPECT_TRUE(says(stats, "\"name\": \"device 0, blocking, below 64 KiB\""));
  EXPECT_TRUE(says(run_program({cli(), "stats", trace}), "device 0, blocking, windows"));
}

TEST(FragTest, ARefusalSaysWhatIsSpilled) {
  const Finished finished =
      frag_test({}, under_cuvmm({{"VMM_SPILL", "host:16M"}, {"VMM_LOG_LEVEL", "WARNING"}}));
  EXPECT_NE(finished.err.find(", 16.0 MiB spilled of at most 16.0 MiB, "), std::string::npos)
      << finished.err;
}

TEST(FragTest, FailsIfCuvmmOnlyRecords) {
  const Finished finished = frag_test({}, under_cuvmm({{"VMM_MODE", "monitor"}}));
  EXPECT_EQ(finished.status, 1);
  EXPECT_TRUE(says(finished, "cuvmm, VMM_MODE=monitor"));
}

TEST(FragTest, FillsNoMoreThanTheLimit) {
  const Finished finished = frag_test({}, under_cuvmm({{"VMM_LIMIT", "64M"}}));
  EXPECT_EQ(finished.status, 0);
  EXPECT_TRUE(says(finished, "128 blocks of 512 KiB"));
}

TEST(FragTest, SaysThatTheDriverHandlesLargeBlocks) {
  const Finished finished = frag_test({"--block", "2M"}, natively());
  EXPECT_EQ(finished.status, 0);
  EXPECT_TRUE(says(finished, "driver copes too"));
  EXPECT_TRUE(says(finished, "65 of 65"));
}

TEST(FragTest, ChecksEveryByteOnRequest) {
  const Finished finished =
      frag_test({"--block", "100K", "--fill", "64M", "--every", "256"}, natively());
  EXPECT_EQ(finished.status, 1);
  EXPECT_TRUE(says(finished, "taken by large blocks"));
  EXPECT_TRUE(says(finished, "FAILED: the memory is free"));
}

TEST(FragTest, RefusesWrongUsage) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"--blocks", "1M"},
                                             {"--block"},
                                             {"--block", "1X"},
                                             {"--block", "100"},
                                             {"--every", "0"}}) {
    EXPECT_EQ(frag_test(words, natively()).status, 2);
  }
  EXPECT_EQ(frag_test({"--help"}, natively()).status, 0);
}

}  // namespace
}  // namespace cuvmm::test
