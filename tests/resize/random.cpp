// SPDX-License-Identifier: Apache-2.0
// The same random programs with VMM_RESIZE=off and all the memory that they need, and in this
// process's own mode, each mode in a separate process: they read the same.
#include <algorithm>
#include <cstdlib>
#include <exception>

#include "engine/control.hpp"
#include "resize/program.hpp"
#include "support/scale.hpp"

namespace cuvmm::test {
namespace {

// Over all three orders of the device 10^3 in a plain run and 10^6 in `./dev stress`, whose scale
// is 10. With small blocks, except that in `auto` mapping wins for large ones only.
std::uint64_t program_count() {
  const std::uint64_t more = run_scale() >= 10 ? 50 : 1;
  return more * scaled(promises() ? 700 : 30);
}
Size least_block() {
  return (promises() ? 8 : 66) * granule;
}

struct Seen {
  std::uint64_t digest = 0;
  std::uint64_t elided = 0;
  std::uint64_t run = 0;
  std::uint64_t most_spilled = 0;
};

Seen run_programs(CUcontext context, std::uint64_t first_seed, std::uint64_t count, Size least,
                  Link& link) {
  const Kernels kernels;
  Seen seen;
  for (std::uint64_t i = 0; i < count; ++i) {
    RandomProgram program{context, kernels, first_seed + i, least};
    link.send(program.run());
    const ChunkCounters elsewhere = Engine::get()->control()->spilled();
    seen.most_spilled =
        std::max(seen.most_spilled, elsewhere.physical_in_use + elsewhere.physical_free);
  }
  if (Resizer* resizer = Engine::get()->serving()->resizer()) {
    const ResizeCounters counters = resizer->counters();
    seen.elided = counters.elided;
    for (const std::uint64_t reason : counters.run) seen.run += reason;
  }
  if (const InvariantViolation violation = Engine::get()->serving()->memory.violation()) {
    throw std::runtime_error(*violation);
  }
  return seen;
}

}  // namespace

CHILD_ROLE(run_random_programs) {
  open_driver();
  CUcontext context = nullptr;
  through_door<Call::cuInit>(0u);
  through_door<Call::cuDevicePrimaryCtxRetain>(&context, 0);
  through_door<Call::cuCtxSetCurrent>(context);
  link.send(run_programs(context, std::stoull(arguments.at(0)), std::stoull(arguments.at(1)),
                         std::stoull(arguments.at(2)), link));
}

namespace {

TEST(RandomPrograms, SeeTheSameAsWithoutResizing) {
  PRINT_SEED_ON_FAILURE();
  const std::uint64_t count = program_count();
  const std::uint64_t first = seed() << 32;
  const ChildArguments arguments{std::to_string(first), std::to_string(count),
                                 std::to_string(least_block())};
  Child natively{"run_random_programs",
                 arguments,
                 {"VMM_RESIZE=off", "VMM_SPILL=off", "VMM_LIMIT=none", "VMM_TRACE_FILE="}};
  Child resizing{"run_random_programs", arguments, {"VMM_TRACE_FILE="}};
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto expected = natively.link().receive<std::uint64_t>();
    ASSERT_EQ(resizing.link().receive<std::uint64_t>(), expected)
        << "the program of seed " << first + i << " read something else";
  }
  natively.link().receive<Seen>();
  const Seen seen = resizing.link().receive<Seen>();
  EXPECT_EQ(natively.wait(), 0);
  EXPECT_EQ(resizing.wait(), 0);
  // The test is worthless unless elisions really happen.
  EXPECT_GT(seen.elided, count / 20);
  EXPECT_GT(seen.run, count / 20);
  const char* const spill = std::getenv("VMM_SPILL");
  EXPECT_EQ(seen.most_spilled != 0, spill != nullptr);
  std::printf("%llu programs: %llu copies elided, %llu run\n",
              static_cast<unsigned long long>(count), static_cast<unsigned long long>(seen.elided),
              static_cast<unsigned long long>(seen.run));
}

}  // namespace
}  // namespace cuvmm::test
