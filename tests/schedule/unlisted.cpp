// SPDX-License-Identifier: Apache-2.0
// A function that is in no list, called while other calls wait in lanes.
#include "hook/unlisted.hpp"
#include "schedule/schedule_world.hpp"
#include "support/child.hpp"

namespace cuvmm::test {
namespace {

std::atomic<std::size_t> queued_at_the_call{~std::size_t{0}};
Client* caller = nullptr;

CUresult unknown_function() {
  queued_at_the_call = caller->lane(0)->waiting();
  return CUDA_SUCCESS;
}

}  // namespace

// In its own process, since coverage never comes back.
CHILD_ROLE(calls_what_nobody_knows) {
  const GivenContext context;
  const Kernels kernels;
  const Scheduled scheduled{Schedule::Priority};
  const GivenClient client{"client"};
  const GivenClient urgent{"urgent", 5};
  caller = &client.get();
  const HookedStream others;
  const HookedStream stream;
  urgent.bind();
  ASSERT_CUDA(launch_hooked(kernels.spin, others.get(), std::uint64_t{20'000'000}));
  client.bind();
  for (int i = 0; i < 10; ++i) {
    ASSERT_CUDA(launch_hooked(kernels.spin, stream.get(), std::uint64_t{1'000'000}));
  }
  void* const entry =
      hook::entry_of_unlisted("cuMemFoldAsync", 14000, reinterpret_cast<void*>(&unknown_function));
  EXPECT_CUDA(reinterpret_cast<decltype(&unknown_function)>(entry)());
  EXPECT_EQ(queued_at_the_call, 0U);
  EXPECT_FALSE(scheduling().is_on());
  scheduling().set_policy(Schedule::Fifo);
  EXPECT_FALSE(scheduling().is_on()) << "nobody could tell what comes before what";
  ASSERT_CUDA(launch_hooked(kernels.spin, stream.get(), std::uint64_t{1}));
  EXPECT_CUDA(hooked().cuStreamSynchronize(stream));
}

namespace {

TEST(UnlistedFunctions, ComeAfterAllQueuedWork) {
  EXPECT_EQ(run_child("calls_what_nobody_knows"), 0);
}

}  // namespace
}  // namespace cuvmm::test
