// SPDX-License-Identifier: Apache-2.0
// Other preload libraries beside cuvmm's, before and after it: both work, and the program behaves
// as it does without either.
#include <gtest/gtest.h>

#include "preload/run_program.hpp"
#include "preload/traces.hpp"

namespace cuvmm::test {
namespace {

enum class Order { TheirsFirst, OursFirst };

class Beside : public ::testing::TestWithParam<Order> {
 protected:
  Variables with(const std::string& library, Variables more) const {
    const std::string theirs = library_of_programs(library);
    more["LD_PRELOAD"] = GetParam() == Order::TheirsFirst ? theirs + ":" + preload_library()
                                                          : preload_library() + ":" + theirs;
    more["VMM_TRACE_FILE"] = trace();
    return under_cuvmm(std::move(more));
  }
  std::string trace() const { return folder_ + "/run.trace"; }

  const std::string folder_ = own_folder();
  static constexpr std::uint64_t allocations = 12;  // made by memory_program
};

TEST_P(Beside, AHookOfOneFunctionIsPassedThrough) {
  const Finished finished =
      run_program({program("memory_linked"), "linked"}, with("interposer", {}));
  EXPECT_EQ(finished.status, 0) << finished.err;
  EXPECT_EQ(memory_events(trace()).allocations, allocations);
  if (GetParam() == Order::OursFirst) return;  // our door goes to the driver, not to the next hook
  EXPECT_NE(finished.out.find("interposer: 1000 bytes"), std::string::npos) << finished.out;
}

TEST_P(Beside, AHookOfTheHeapSeesTheHeap) {
  const Finished alone = run_program({program("memory"), "dlsym"}, natively());
  const Finished finished =
      run_program({program("memory"), "dlsym"}, with("malloc_hook", {{"MALLOC_HOOK_TELLS", "1"}}));
  EXPECT_EQ(finished.status, 0) << finished.err;
  EXPECT_EQ(finished.out, alone.out);
  EXPECT_EQ(finished.err, "malloc hook: saw the heap\n");
  EXPECT_EQ(memory_events(trace()).allocations, allocations);
}

// The hook changes what RTLD_NEXT means for its caller, with or without cuvmm; lookups by handle
// find everything.
TEST_P(Beside, AHookOfDlsymIsAskedAndSeesTheLookups) {
  const Finished alone = run_program({program("memory"), "dlsym"}, natively());
  const Finished finished =
      run_program({program("memory"), "dlsym"}, with("naive_dlsym", {{"NAIVE_DLSYM_TELLS", "1"}}));
  EXPECT_EQ(finished.status, 0) << finished.err;
  EXPECT_EQ(finished.out, alone.out);
  EXPECT_EQ(finished.err, "naive dlsym: was asked\n");
  EXPECT_EQ(memory_events(trace()).allocations, allocations);
}

TEST_P(Beside, AHookThatAnswersDlsymWithItsOwnFunctionsDoesNotBypassUs) {
  for (const char* way : {"dlsym", "proc"}) {
    const Finished alone = run_program({program("memory"), way, "12000", "0"}, natively());
    const Finished finished =
        run_program({program("memory"), way, "12000", "0"}, with("versioned_dlsym", {}));
    EXPECT_EQ(finished.status, 0) << way << ": " << finished.err;
    EXPECT_EQ(finished.out, alone.out) << way;
    EXPECT_EQ(memory_events(trace()).allocations, allocations) << way;
  }
}

TEST_P(Beside, AllTogetherLeaveTheProgramUnchanged) {
  const std::string others = library_of_programs("malloc_hook") + ":" +
                             library_of_programs("naive_dlsym") + ":" +
                             library_of_programs("interposer");
  const std::string all = GetParam() == Order::TheirsFirst ? others + ":" + preload_library()
                                                           : preload_library() + ":" + others;
  const Finished finished =
      run_program({program("memory"), "proc", "12000", "0"},
                  under_cuvmm({{"LD_PRELOAD", all}, {"VMM_TRACE_FILE", trace()}}));
  EXPECT_EQ(finished.status, 0) << finished.err;
  EXPECT_EQ(memory_events(trace()).allocations, allocations);
}

INSTANTIATE_TEST_SUITE_P(Orders, Beside, ::testing::Values(Order::TheirsFirst, Order::OursFirst),
                         [](const auto& order) {
                           return order.param == Order::TheirsFirst ? "TheirsFirst" : "OursFirst";
                         });

}  // namespace
}  // namespace cuvmm::test
