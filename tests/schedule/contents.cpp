// SPDX-License-Identifier: Apache-2.0
// Whatever the policy does, memory holds what the program's own order dictates.
#include "schedule/random_program.hpp"

namespace cuvmm::test {
namespace {

constexpr int steps = 14;

void run_programs(Schedule policy, std::uint64_t programs) {
  PRINT_SEED_ON_FAILURE();
  const GivenContext context;
  const Kernels kernels;
  const Scheduled scheduled{policy};
  const GivenClient low{"low", -3, 1};
  const GivenClient middle{"middle", 0, 2};
  const GivenClient high{"high", 3, 3};
  const std::array<const GivenClient*, 3> clients = {&low, &middle, &high};
  for (std::uint64_t i = 0; i < programs; ++i) {
    const std::uint64_t of_this = seed() * 1'000'003 + i * 4 + static_cast<std::uint64_t>(policy);
    SCOPED_TRACE("program " + std::to_string(of_this));
    RandomProgram program{kernels, of_this, clients};
    program.run(steps);
    program.check();
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(low.get().figures().operations, programs);
  scheduled.scheduler().bind_this_thread(nullptr);
}

// 10,000 in all, over all policies and all orders of the simulated driver.
constexpr std::uint64_t of_each_policy = 280;

TEST(Contents, AreTheProgramsOwnUnderFifo) {
  run_programs(Schedule::Fifo, scaled(of_each_policy));
}
TEST(Contents, AreTheProgramsOwnUnderRoundRobin) {
  run_programs(Schedule::RoundRobin, scaled(of_each_policy));
}
TEST(Contents, AreTheProgramsOwnUnderPriority) {
  run_programs(Schedule::Priority, scaled(of_each_policy));
}
TEST(Contents, AreTheProgramsOwnUnderFair) {
  run_programs(Schedule::Fair, scaled(of_each_policy));
}

}  // namespace
}  // namespace cuvmm::test
