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

TEST(Advice, ClaimsNoCauseIfEnoughMemoryWasRefused) {
  AdviceFacts facts = of_pytorch(18 * GiB, 17 * GiB, 17 * GiB, 20 * GiB);
  facts.was_refused = true;
  const Advice advice = advise(facts);
  EXPECT_EQ(advice.verdict, AdviceVerdict::Fits);
  EXPECT_NE(advice.text.find("the trace does not say why"), std::string::npos) << advice.text;
}

TEST(Advice, BlamesNothingOnTheCardIfTheUserAsksAboutALargerOne) {
  AdviceFacts facts = of_program(18 * GiB, 17 * GiB, 20 * GiB);
  facts.was_refused = true;
  facts.limit_origin = LimitOrigin::User;
  facts.memory_when_refused = 64 * MiB;
  const Advice advice = advise(facts);
  EXPECT_EQ(advice.verdict, AdviceVerdict::Fits);
  EXPECT_TRUE(
      advice.text.ends_with(" When it was recorded, it ran out of memory with 64.0 MiB available."))
      << advice.text;
}

TEST(Advice, SaysThatRefusedRequestsAreIncluded) {
  AdviceFacts facts = of_program(17 * GiB, 17 * GiB, 12 * GiB);
  EXPECT_NE(advise(facts).text.find("The program holds 16.0 GiB at one time, and only 12.0 GiB "
                                    "is available: no allocator"),
            std::string::npos);
  facts.lacked_memory = true;
  const Advice advice = advise(facts);
  EXPECT_NE(
      advice.text.find("With the requests that were refused, the program would hold 16.0 GiB"),
      std::string::npos)
      << advice.text;
  EXPECT_NE(advice.text.find("only probes for free memory"), std::string::npos) << advice.text;
}

TEST(Advice, NamesTheDifferenceOfSizesThatLookAlike) {
  const Advice holds = advise(of_program(17 * GiB, 17 * GiB, 16 * GiB - 2 * MiB));
  EXPECT_NE(holds.text.find("holds 16.0 GiB at one time, 2.00 MiB more than there is:"),
            std::string::npos)
      << holds.text;
  const Advice needs = advise(of_program(18 * GiB, 16 * GiB + 2 * MiB, 16 * GiB));
  EXPECT_NE(needs.text.find("the best (arena) needs 2.00 MiB more than 16.0 GiB"),
            std::string::npos)
      << needs.text;
}

TEST(Advice, NamesTheCommandIfOnlyCuvmmFits) {
  const Advice pytorch = advise(of_pytorch(40 * GiB, 22 * GiB, 17 * GiB, 20 * GiB));
  EXPECT_EQ(pytorch.verdict, AdviceVerdict::Cuvmm);
  EXPECT_EQ(pytorch.setting, "cuvmm run --frameworks --limit 20480M -- python train.py");
  const Advice program = advise(of_program(30 * GiB, 16 * GiB));
  EXPECT_EQ(program.verdict, AdviceVerdict::Cuvmm);
  EXPECT_EQ(program.setting, "cuvmm run -- ./program");
}

TEST(Advice, SaysWhatCuvmmWouldNeedIfItNeedsLess) {
  const Advice better = advise(of_pytorch(40 * GiB, 22 * GiB, 17 * GiB, 24 * GiB));
  EXPECT_EQ(better.verdict, AdviceVerdict::Expandable);
  EXPECT_NE(better.text.find("which is enough within this limit. cuvmm would need 17.0 GiB."),
            std::string::npos)
      << better.text;
  const Advice equal = advise(of_pytorch(40 * GiB, 17 * GiB, 17 * GiB, 24 * GiB));
  EXPECT_NE(equal.text.find("cuvmm would save no more"), std::string::npos) << equal.text;
  const Advice similar = advise(of_pytorch(40 * GiB, 17 * GiB + 100 * MiB, 17 * GiB, 24 * GiB));
  EXPECT_NE(similar.text.find("cuvmm would save little more (17.0 GiB)."), std::string::npos)
      << similar.text;
}

TEST(Advice, SaysWhetherFragmentationOrTheLackOfAnythingBetterIsTheReason) {
  const Advice tight = advise(of_program(16 * GiB, 16 * GiB));
  EXPECT_NE(tight.text.find("Hardly any memory is lost"), std::string::npos) << tight.text;
  const Advice loose = advise(of_pytorch(24 * GiB, 24 * GiB, 24 * GiB));
  EXPECT_EQ(loose.verdict, AdviceVerdict::NothingToGain);
  EXPECT_EQ(loose.text,
            "PyTorch's allocator with default settings needs 24.0 GiB for the 16.0 GiB that the "
            "program holds. No tried allocator needs less.");
}

TEST(Advice, ClaimsNothingOfAPolicyThatCompletedWithNoMemory) {
  AdviceFacts facts = of_program(17 * GiB, 17 * GiB, 20 * GiB);
  facts.needs[0].least = unlimited;
  facts.needs[0].fits = false;
  const Advice advice = advise(facts);
  EXPECT_EQ(advice.verdict, AdviceVerdict::Cuvmm);
  EXPECT_NE(advice.text.find("more than 17.0 GiB"), std::string::npos) << advice.text;
}

TEST(Advice, NamesALimitOfWholeChunks) {
  EXPECT_EQ(advise(of_program(17 * GiB, 17 * GiB, 100)).setting,
            "cuvmm run --limit 2M --spill host -- ./program");
}

TEST(Advice, NamesNoLargerLimitThanThereIs) {
  EXPECT_EQ(advise(of_program(17 * GiB, 17 * GiB, 12 * GiB + 1)).setting,
            "cuvmm run --limit 12288M --spill host -- ./program");
}

TEST(Advice, SuggestsNoSettingForARequestLargerThanTheCard) {
  AdviceFacts facts = of_program(17 * GiB, 17 * GiB, 12 * GiB);
  facts.largest_request = 13 * GiB;
  const Advice advice = advise(facts);
  EXPECT_STREQ(name_of(advice.verdict), "too_large");
  EXPECT_EQ(advice.setting, "");
  EXPECT_NE(advice.text.find("No setting serves a single request of 13.0 GiB"), std::string::npos)
      << advice.text;
}

// The program ran with VMM_LIMIT.
TEST(Advice, SuggestsSpillingForARequestLargerThanTheLimitButNotThanTheCard) {
  AdviceFacts facts = of_program(17 * GiB, 17 * GiB, 12 * GiB);
  facts.largest_request = 13 * GiB;
  facts.device_memory = 16 * GiB;
  EXPECT_STREQ(name_of(advise(facts).verdict), "spill");
  facts.largest_request = 17 * GiB;
  const Advice advice = advise(facts);
  EXPECT_STREQ(name_of(advice.verdict), "too_large");
  EXPECT_NE(advice.text.find("only 16.0 GiB is available"), std::string::npos) << advice.text;
}

TEST(Advice, TheCardHasAtLeastTheLimit) {
  ReplayTrace trace;
  const Size card = memory_of_card(trace, unlimited);
  EXPECT_EQ(memory_of_card(trace, 16 * GiB), card);
  EXPECT_EQ(memory_of_card(trace, 200 * GiB), 200 * GiB);
  trace.live_peak_bytes = 150 * GiB;
  EXPECT_EQ(memory_of_card(trace, unlimited), 300 * GiB);
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

void add_compacting(AdviceFacts& facts, Size least) {
  facts.needs.push_back({.policy = PolicyName::Arena,
                         .peak = least,
                         .least = least,
                         .fits = least <= facts.limit,
                         .compact = Compact::All});
}

TEST(Advice, NamesCompactionOfSmallBlocksIfOnlyThatFits) {
  AdviceFacts facts = of_program(30 * GiB, 24 * GiB, 20 * GiB);
  EXPECT_TRUE(may_gain_by_compaction(facts));
  add_compacting(facts, 17 * GiB);
  const Advice advice = advise(facts);
  EXPECT_EQ(advice.verdict, AdviceVerdict::Cuvmm);
  EXPECT_EQ(advice.setting, "VMM_COMPACT=all cuvmm run --limit 20480M -- ./program");
  EXPECT_NE(advice.text.find("with small blocks laid out for compaction, it needs 17.0 GiB."),
            std::string::npos)
      << advice.text;
}

TEST(Advice, NamesCompactionOfSmallBlocksIfItAloneNeedsLess) {
  AdviceFacts facts = of_program(30 * GiB, 30 * GiB);
  EXPECT_TRUE(may_gain_by_compaction(facts));
  add_compacting(facts, 17 * GiB);
  EXPECT_EQ(advise(facts).setting, "VMM_COMPACT=all cuvmm run -- ./program");
}

TEST(Advice, NamesCompactionOfSmallBlocksAsTheClosestIfNothingFits) {
  AdviceFacts facts = of_program(30 * GiB, 24 * GiB, 17 * GiB);
  add_compacting(facts, 18 * GiB);
  const Advice advice = advise(facts);
  EXPECT_EQ(advice.verdict, AdviceVerdict::TooFragmented);
  EXPECT_NE(advice.text.find("the best (arena, all) needs 18.0 GiB"), std::string::npos)
      << advice.text;
}

TEST(Advice, TriesNoCompactionOfSmallBlocksIfItCannotMatter) {
  EXPECT_FALSE(may_gain_by_compaction(of_program(30 * GiB, 16 * GiB)));
  EXPECT_FALSE(may_gain_by_compaction(of_program(30 * GiB, 17 * GiB, 20 * GiB)));
  EXPECT_FALSE(may_gain_by_compaction(of_pytorch(40 * GiB, 18 * GiB, 24 * GiB, 20 * GiB)));
  EXPECT_FALSE(may_gain_by_compaction(of_program(30 * GiB, 24 * GiB, 12 * GiB))) << "must spill";
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

TEST(Advice, LeavesOutRequestsThatTheProgramGotOver) {
  TraceBuilder builder;
  builder.allocate({.time_us = 1, .address = 1, .size = 4 * MiB});
  builder.refuse({.time_us = 2, .size = 1 * MiB}, 0);  // looks for what is free
  builder.refuse({.time_us = 3, .size = 8 * MiB}, 0);  // repeated
  builder.free(4, 1);
  builder.refuse({.time_us = 5, .size = 8 * MiB}, 4 * MiB);
  builder.refuse({.time_us = 6, .size = 6 * MiB}, 4 * MiB);
  builder.allocate({.time_us = 7, .address = 2, .size = 3 * MiB});
  builder.allocate({.time_us = 8, .address = 3, .size = 6 * MiB});
  const ReplayTrace trace = builder.finish();
  const ReplayTrace served = with_refused_requests(trace);
  EXPECT_EQ(served.allocations, trace.allocations + 1);
  EXPECT_EQ(served.largest_bytes, 8 * MiB);
  EXPECT_EQ(served.live_peak_bytes, 9 * MiB) << "not the 12 of the first time";
}

TEST(Advice, CountsMemoryGivenBackSinceALateStartOnlyOnce) {
  TraceBuilder builder;
  builder.allocate({.time_us = 1, .address = 1, .size = 4 * MiB});
  builder.reserve(-static_cast<std::int64_t>(600 * MiB));
  builder.refuse({.time_us = 2, .size = 700 * MiB}, 100 * MiB);
  builder.reserved_at_end(400 * MiB);
  const ReplayTrace trace = builder.finish(Source::PytorchSnapshot);
  EXPECT_EQ(trace.reserved_peak_bytes, 1000 * MiB);
  EXPECT_EQ(memory_when_refused(trace), 500 * MiB);
}

TEST(Advice, KnowsTheMemoryAtARefusal) {
  const auto memory = [](std::optional<Size> available, std::optional<Size> of_device) {
    TraceBuilder builder;
    builder.allocate({.time_us = 1, .address = 1, .size = 4 * MiB});
    builder.refuse({.time_us = 2, .size = 8 * MiB}, available);
    if (of_device) builder.memory(*of_device);
    return memory_when_refused(builder.finish());
  };
  EXPECT_EQ(memory({}, {}), unlimited);
  EXPECT_EQ(memory(0, {}), 4 * MiB);  // the card was full
  EXPECT_EQ(memory({}, 64 * MiB), 64 * MiB);
}

TEST(Advice, SubtractsTheProgramsOwnChunksFromTheMemoryAtARefusal) {
  TraceBuilder builder;
  builder.allocate({.time_us = 1, .address = 1, .size = 4 * MiB});
  builder.refuse({.time_us = 2, .size = 8 * MiB}, {}, 60 * MiB);
  builder.memory(64 * MiB);
  const ReplayTrace trace = builder.finish();
  EXPECT_EQ(memory_when_refused(trace), 4 * MiB);
  EXPECT_EQ(own_chunks_when_refused(trace), 60 * MiB);

  AdviceFacts facts = of_program(17 * GiB, 17 * GiB, 12 * GiB);
  facts.own_chunks = GiB;  // which cuvmm's limit covers too
  EXPECT_EQ(advise(facts).setting, "cuvmm run --limit 13312M --spill host -- ./program");
}

}  // namespace
}  // namespace cuvmm::test
