// SPDX-License-Identifier: Apache-2.0
// cuvmm replay: what a shell sees of it, and its results for the given traces.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/sim_options.hpp"
#include "preload/run_program.hpp"

namespace cuvmm::test {
namespace {

Finished replay(std::vector<std::string> words, const Variables& variables = {}) {
  words.insert(words.begin(), {cli(), "replay"});
  return run_program(words, variables);
}

nlohmann::json replayed(std::vector<std::string> words, int status = 0) {
  words.push_back("--json");
  const Finished finished = replay(words);
  EXPECT_EQ(finished.status, status) << finished.err;
  auto object = nlohmann::json::parse(finished.out, nullptr, false);
  EXPECT_TRUE(object.is_object()) << finished.out;
  return object;
}

std::string given_trace(const std::string& name) {
  return std::string{CUVMM_SOURCE_DIR} + "/bench/traces/" + name + ".trace.gz";
}

// 20 blocks of 1 MiB, every second one freed, then one of 5 MiB.
std::string small_trace() {
  std::string path = own_folder() + "/small.csv";
  std::ofstream file{path};
  file << "time_us,action,address,size,stream\n";
  int time = 0;
  for (int i = 0; i < 20; ++i) {
    file << ++time << ",alloc," << i + 16 << ",1048576,0\n";
  }
  for (int i = 0; i < 20; i += 2) {
    file << ++time << ",free_completed," << i + 16 << ",1048576,0\n";
  }
  file << ++time << ",alloc,ffff,5242880,0\n";
  return path;
}

constexpr const char* policies[] = {"arena", "expandable", "caching", "driver"};

class ReplayPolicy : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, ReplayPolicy, ::testing::ValuesIn(policies),
                         [](const auto& test) { return std::string{test.param}; });

TEST_P(ReplayPolicy, SummarizesATraceInOneFlatObject) {
  const auto object = replayed({small_trace(), "--policy", GetParam(), "--limit", "64M"});
  EXPECT_EQ(object["completed"], true);
  EXPECT_EQ(object["events"], 31);
  EXPECT_EQ(object["policy"], GetParam());
  EXPECT_EQ(object["live_peak_bytes"], 20 * MiB);
  EXPECT_EQ(object["limit_bytes"], 64 * MiB);
  EXPECT_GE(object["physical_peak_bytes"], 20 * MiB);
  EXPECT_LE(object["physical_peak_bytes"], 64 * MiB);
  EXPECT_GT(object["modelled_us"], 0);
  EXPECT_GT(object["creates"], 0);
  EXPECT_TRUE(object["moves"].is_number_unsigned());
  for (const auto& value : object) EXPECT_TRUE(value.is_primitive());
}

TEST_P(ReplayPolicy, ExitsWithThreeOnOutOfMemory) {
  const std::string trace = small_trace();
  const auto object = replayed({trace, "--policy", GetParam(), "--limit", "12M"}, 3);
  EXPECT_EQ(object["completed"], false);
  EXPECT_EQ(object["failed_event"], object["events"].get<int>() + 1);
  EXPECT_EQ(object["asked_bytes"], MiB);
  const Finished finished = replay({trace, "--policy", GetParam(), "--limit", "12M"});
  EXPECT_EQ(finished.status, 3);
  EXPECT_NE(finished.err.find("cuvmm: event 13: allocate: out of memory"), std::string::npos)
      << finished.err;
  EXPECT_NE(finished.out.find("12  of 31"), std::string::npos) << finished.out;
}

TEST_P(ReplayPolicy, DoesNotAskTheEnvironmentForTheCard) {
  const std::string trace = small_trace();
  const Finished plain = replay({trace, "--policy", GetParam(), "--json"});
  const Finished other = replay({trace, "--policy", GetParam(), "--json"},
                                {{"VMM_SIM_MEMORY", "4M"},
                                 {"VMM_SIM_DEVICES", "0"},
                                 {"VMM_SIM_FAULT", "cuMemAlloc:3=CUDA_ERROR_OUT_OF_MEMORY"}});
  EXPECT_EQ(plain.status, 0);
  EXPECT_EQ(other.out, plain.out);
}

// The simulated driver warns of values that it cannot read.
TEST_P(ReplayPolicy, ObeysNoOptionOfTheSimulatedDriver) {
  Variables unreadable;
  for (const OptionRow& row : SimOptions::rows()) unreadable[row.name] = "/";
  const Finished finished = replay({small_trace(), "--policy", GetParam()}, unreadable);
  EXPECT_EQ(finished.status, 0);
  EXPECT_EQ(finished.err, "");
}

TEST(ReplayCommand, LimitMayBeAMultipleOfThePeakOfLiveBytes) {
  const std::string trace = small_trace();
  const auto limit_of = [&](const char* limit) {
    return replayed({trace, "--policy", "caching", "--limit", limit})["limit_bytes"];
  };
  EXPECT_EQ(limit_of("2x"), 40 * MiB);
  EXPECT_EQ(limit_of("2.5X"), 50 * MiB);
  EXPECT_EQ(limit_of("1G"), GiB);
  EXPECT_EQ(replayed({trace, "--policy", "caching"})["limit_bytes"], nullptr);
}

TEST(ReplayCommand, ExitsWithTwoOnWrongUsage) {
  const std::string trace = small_trace();
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{},
                                             {trace, "--policy", "best"},
                                             {trace, "--grow", "slowly"},
                                             {trace, "--limit", "much"},
                                             {trace, "--limit", "0"},
                                             {trace, "--limit", "0x"},
                                             {trace, "--limit", "-1x"},
                                             {trace, "--limit", "1.02y"},
                                             {trace, "--limit", "x"},
                                             {trace, "--chunk", "3M1"},
                                             {trace, "--chunk", "1M"},
                                             {trace, "--chunk", "0"},
                                             {trace, trace}}) {
    EXPECT_EQ(replay(words).status, 2) << ::testing::PrintToString(words);
  }
}

TEST(ReplayCommand, NamesTheLineThatItCannotRead) {
  const std::string path = own_folder() + "/bad.csv";
  std::ofstream{path} << "time_us,action,address,size,stream\n1,alloc,a0,many,0\n";
  const Finished finished = replay({path, "--policy", "caching"});
  EXPECT_EQ(finished.status, 1);
  EXPECT_NE(
      finished.err.find("bad.csv: read trace: invalid argument (line 2: size is not a number"),
      std::string::npos)
      << finished.err;
  EXPECT_EQ(replay({"/no/such/file"}).status, 1);
}

TEST(ReplayCommand, WarnsOfOptionsWithoutEffect) {
  const Finished finished = replay({small_trace(), "--policy", "driver", "--chunk", "2M"});
  EXPECT_EQ(finished.status, 0);
  EXPECT_NE(finished.err.find("--chunk: has no effect on the policy driver"), std::string::npos);
}

TEST(ReplayCommand, ReplaysWhatRunRecorded) {
  const std::string trace = own_folder() + "/run.trace";
  ASSERT_EQ(run_program({cli(), "run", "--sim", "--mode", "monitor", "--trace", trace, "--",
                         program("memory"), "dlsym"})
                .status,
            0);
  const auto object = replayed({trace, "--policy", "caching"});
  EXPECT_EQ(object["completed"], true);
  EXPECT_GT(object["live_peak_bytes"], 0);
}

// What PyTorch reserved on the card for these traces (one H200), in MiB.
struct Reserved {
  const char* trace;
  const char* policy;
  double mib;
};
class GivenTraces : public ::testing::TestWithParam<Reserved> {};
INSTANTIATE_TEST_SUITE_P(All, GivenTraces,
                         ::testing::Values(Reserved{"train_var", "caching", 33'498},
                                           Reserved{"train_var", "expandable", 27'974},
                                           Reserved{"train_ckpt_lora", "caching", 41'604},
                                           Reserved{"train_ckpt_lora", "expandable", 19'786}),
                         [](const auto& test) {
                           return std::string{test.param.trace} + "_" + test.param.policy;
                         });

TEST_P(GivenTraces, ModelReservesWhatPytorchReservedOnTheCard) {
  const auto object = replayed({given_trace(GetParam().trace), "--policy", GetParam().policy});
  EXPECT_EQ(object["completed"], true);
  const double mib = object["physical_peak_bytes"].get<double>() / MiB;
  EXPECT_NEAR(mib, GetParam().mib, 0.03 * GetParam().mib);
}

// The limits within which PyTorch itself finished on the card.
TEST_P(GivenTraces, ModelFinishesWherePytorchFinished) {
  const std::string limit = std::string{GetParam().policy} == "caching" ? "1.25x" : "1.02x";
  const auto object =
      replayed({given_trace(GetParam().trace), "--policy", GetParam().policy, "--limit", limit});
  EXPECT_EQ(object["completed"], true);
  EXPECT_GT(object["retries"], 0);
}

class ArenaOnGivenTraces : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, ArenaOnGivenTraces, ::testing::Values("train_var", "train_ckpt_lora"),
                         [](const auto& test) { return std::string{test.param}; });

TEST_P(ArenaOnGivenTraces, FinishesWithHalfAPercentMoreThanIsLive) {
  for (const char* grow : {"loose", "tight"}) {
    SCOPED_TRACE(grow);
    const auto object = replayed({given_trace(GetParam()), "--limit", "1.005x", "--grow", grow});
    EXPECT_EQ(object["completed"], true);
    EXPECT_LE(object["physical_peak_bytes"], object["limit_bytes"]);
    EXPECT_GT(object["moves"], 0);
  }
}

TEST_P(ArenaOnGivenTraces, NeverMovesWhileMemoryIsPlentiful) {
  EXPECT_EQ(replayed({given_trace(GetParam())})["moves"], 0);
}

TEST(ReplayCommand, GrowingCachesFitByMovingLiveMemory) {
  const std::string trace = given_trace("serve_cache");
  const auto object = replayed({trace, "--limit", "1.005x"});
  EXPECT_EQ(object["completed"], true);
  EXPECT_GT(object["compacted_blocks"], 0);
  replayed({trace, "--limit", "1.005x", "--compact", "off"}, 3);
}

// The same policy, written for a trial and run on the card, used 28,130 and 19,772 MiB.
TEST_P(ArenaOnGivenTraces, WithSmallestChunksMatchesTheTrialOnTheCard) {
  const auto object = replayed({given_trace(GetParam()), "--chunk", "2M"});
  const double card = std::string{GetParam()} == "train_var" ? 28'130 : 19'772;
  EXPECT_NEAR(object["physical_peak_bytes"].get<double>() / MiB, card, 0.01 * card);
}

}  // namespace
}  // namespace cuvmm::test
