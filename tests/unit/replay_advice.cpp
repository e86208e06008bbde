// SPDX-License-Identifier: Apache-2.0
#include "replay/advice.hpp"

#include <gtest/gtest.h>

namespace cuvmm::test {
namespace {

using namespace replay;

AdviceFacts facts_of(Source source, Size limit,
                     std::initializer_list<std::pair<PolicyName, Size>> needs) {
  AdviceFacts facts{.source = source, .live_peak = 16 * GiB, .limit = limit, .needs = {}};
  for (const auto& [policy, bytes] : needs) {
    facts.needs.push_back(
        {.policy = policy, .peak = bytes, .least = bytes, .fits = bytes <= limit});
  }
  return facts;
}

AdviceFacts of_pytorch(Size caching, Size expandable, Size arena, Size limit = unlimited) {
  return facts_of(Source::PytorchSnapshot, limit,
                  {{PolicyName::Caching, caching},
                   {PolicyName::Expandable, expandable},
                   {PolicyName::Arena, arena}});
}

AdviceFacts of_program(Size driver, Size arena, Size limit = unlimited) {
  return facts_of(Source::Cuvmm, limit, {{PolicyName::Driver, driver}, {PolicyName::Arena, arena}});
}

TEST(Advice, SaysWhenCuvmmDoesNotHelp) {
  for (const Size limit : {unlimited, 20 * GiB}) {
    const Advice advice = advise(of_pytorch(40 * GiB, 17 * GiB, 17 * GiB, limit));
    EXPECT_EQ(advice.verdict, AdviceVerdict::Expandable);
    EXPECT_EQ(advice.setting, "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True");
  }
  const Advice tight = advise(of_pytorch(16 * GiB + 100 * MiB, 16 * GiB, 16 * GiB));
  EXPECT_EQ(tight.verdict, AdviceVerdict::NothingToGain);
  EXPECT_EQ(tight.setting, "");
  EXPECT_EQ(advise(of_pytorch(18 * GiB, 17 * GiB, 17 * GiB, 20 * GiB)).verdict,
            AdviceVerdict::Fits);
}

TEST(Advice, PointsToOtherProcessesIfEnoughMemoryWasRefused) {
  AdviceFacts facts = of_pytorch(18 * GiB, 17 * GiB, 17 * GiB, 20 * GiB);
  facts.was_refused = true;
  const Advice advice = advise(facts);
  EXPECT_EQ(advice.verdict, AdviceVerdict::Fits);
  EXPECT_NE(advice.text.find("something else held part of the card"), std::string::npos);
}

TEST(Advice, NamesTheCommandIfOnlyCuvmmFits) {
  const Advice pytorch = advise(of_pytorch(40 * GiB, 22 * GiB, 17 * GiB, 20 * GiB));
  EXPECT_EQ(pytorch.verdict, AdviceVerdict::Cuvmm);
  EXPECT_EQ(pytorch.setting, "cuvmm run --frameworks --limit 20480M -- python train.py");
  const Advice program = advise(of_program(30 * GiB, 16 * GiB));
  EXPECT_EQ(program.verdict, AdviceVerdict::Cuvmm);
  EXPECT_EQ(program.setting, "cuvmm run -- ./program");
}

TEST(Advice, SuggestsSpillingBeyondTheCard) {
  const Advice advice = advise(of_program(17 * GiB, 17 * GiB, 12 * GiB));
  EXPECT_EQ(advice.verdict, AdviceVerdict::Spill);
  EXPECT_EQ(advice.setting, "cuvmm run --limit 12288M --spill host -- ./program");
}

TEST(Advice, NamesTheClosestPolicyIfNoneFits) {
  const Advice advice = advise(of_program(30 * GiB, 18 * GiB, 17 * GiB));
  EXPECT_EQ(advice.verdict, AdviceVerdict::TooFragmented);
  EXPECT_NE(advice.text.find("the best (arena) needs 18.0 GiB"), std::string::npos) << advice.text;
}

TEST(Advice, DoesNotSuggestExpandableSegmentsAlreadyInUse) {
  AdviceFacts facts = of_pytorch(40 * GiB, 24 * GiB, 17 * GiB, 20 * GiB);
  facts.is_expandable = true;
  EXPECT_EQ(policy_in_use(facts), PolicyName::Expandable);
  EXPECT_EQ(advise(facts).verdict, AdviceVerdict::Cuvmm);
}

TEST(Advice, CountsRefusedRequestsAsIfServed) {
  TraceBuilder builder;
  builder.allocate({.time_us = 1, .address = 1, .size = 4 * MiB});
  builder.refuse({.time_us = 2, .size = 8 * MiB}, 6 * MiB);
  builder.free(3, 1);
  const ReplayTrace trace = builder.finish(Source::RmmLog);
  const ReplayTrace served = with_refused_requests(trace);
  EXPECT_EQ(served.live_peak_bytes, 12 * MiB);
  EXPECT_EQ(served.allocations, 2u);
  ASSERT_EQ(served.events.size(), 4u);
  EXPECT_EQ(served.events[1].size, 8 * MiB);
  EXPECT_EQ(served.events[2].action, Action::Free);
  EXPECT_EQ(memory_when_refused(trace), 10 * MiB);
  EXPECT_EQ(memory_when_refused(served), unlimited);
}

}  // namespace
}  // namespace cuvmm::test
