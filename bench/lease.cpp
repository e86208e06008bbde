// SPDX-License-Identifier: Apache-2.0
// Measures the cost of committing physical memory within a lease, and without a service.
#include <benchmark/benchmark.h>

#include "vmm/leased_budget.hpp"

namespace cuvmm {
namespace {

class NoLessor final : public Lessor {
 public:
  void begin(LeasedBudget& budget, const Uuid&, Size) override { budget.lease_from(*this); }
  Extended extend(LeasedBudget&, Size) override { return Extended::No; }
  bool wait_for(LeasedBudget&, Size, std::uint64_t, std::uint64_t, const StillWanted&) override {
    return false;
  }
};

void commit_and_give_back(benchmark::State& state, Budget& budget) {
  for (auto _ : state) {
    auto right = budget.commit(2 * MiB);
    benchmark::DoNotOptimize(right);
    if (!right.ok()) state.SkipWithError("refused");
  }
}

void without_service(benchmark::State& state) {
  LeasedBudget budget;
  commit_and_give_back(state, budget);
}
BENCHMARK(without_service);

void inside_the_lease(benchmark::State& state) {
  NoLessor lessor;
  LeasedBudget budget;
  lessor.begin(budget, {}, GiB);
  budget.add_lease(64 * MiB);
  commit_and_give_back(state, budget);
}
BENCHMARK(inside_the_lease);

}  // namespace
}  // namespace cuvmm

BENCHMARK_MAIN();
