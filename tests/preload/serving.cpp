// SPDX-License-Identifier: Apache-2.0
// Memory served to complete programs that know nothing of cuvmm.
#include <gtest/gtest.h>

#include "preload/run_program.hpp"
#include "preload/traces.hpp"

namespace cuvmm::test {
namespace {

Variables served(Variables more = {}) {
  more.emplace("VMM_MODE", "VMM");
  return under_cuvmm(std::move(more));
}

Finished memory_program(const Variables& variables) {
  return run_program({program("memory_linked")}, variables);
}

TEST(Serving, BehavesAsTheDriverDoes) {
  const Finished natively_run = memory_program(natively());
  const Finished finished = memory_program(served());
  EXPECT_EQ(finished.status, 0) << finished.err;
  EXPECT_EQ(finished.out, natively_run.out);
  EXPECT_EQ(finished.err, "");
}

// If cuvmm cannot serve device memory, the driver serves it, and one line says so.
class ServingGivesUp : public ::testing::TestWithParam<const char*> {};

TEST_P(ServingGivesUp, AndTheProgramRunsNatively) {
  const Finished natively_run = memory_program(natively());
  const Finished finished = memory_program(served({{"VMM_SIM_FAULT", GetParam()}}));
  EXPECT_EQ(finished.status, 0) << finished.err;
  EXPECT_EQ(finished.out, natively_run.out);
  EXPECT_EQ(lines_in(finished.err), 1U) << finished.err;
  EXPECT_NE(finished.err.find("WARNING"), std::string::npos) << finished.err;
}

INSTANTIATE_TEST_SUITE_P(WhereTheTrialFails, ServingGivesUp,
                         ::testing::Values("cuMemAddressReserve:1=CUDA_ERROR_NOT_SUPPORTED",
                                           "cuMemCreate:1=CUDA_ERROR_NOT_PERMITTED",
                                           "cuMemMap:1=CUDA_ERROR_NOT_SUPPORTED",
                                           "cuMemSetAccess:1=CUDA_ERROR_INVALID_DEVICE"));

// A comb of blocks, every second freed: natively nothing large fits; under cuvmm nearly all of it
// does.
TEST(Serving, MakesOneAllocationFromScatteredMemory) {
  const Variables small_card{{"VMM_SIM_MEMORY", "1G"}};
  Variables native = natively();
  native.insert(small_card.begin(), small_card.end());
  EXPECT_EQ(run_program({example("frag_test")}, native).status, 1);
  const Finished finished = run_program({example("frag_test")}, served(small_card));
  EXPECT_EQ(finished.status, 0) << finished.out << finished.err;
}

TEST(Serving, KeepsTheLimit) {
  const Finished limited = run_program({example("frag_test")}, served({{"VMM_LIMIT", "1G"}}));
  EXPECT_EQ(limited.status, 0) << limited.out << limited.err;
  EXPECT_NE(limited.out.find("1.00 GiB free of 1.00 GiB"), std::string::npos) << limited.out;
}

TEST(Serving, CountsNativeAllocationsAgainstTheLimit) {
  const Finished finished = run_program({program("native")}, served({{"VMM_LIMIT", "1G"}}));
  EXPECT_EQ(finished.status, 0) << finished.out << finished.err;
  EXPECT_NE(finished.out.find("at first: 1024 of 1024 MiB free"), std::string::npos)
      << finished.out;
}

TEST(Serving, IsRecordedAsOurs) {
  const std::string trace = own_folder() + "/trace";
  const Finished finished = memory_program(served({{"VMM_TRACE_FILE", trace}}));
  EXPECT_EQ(finished.status, 0);
  const MemoryEvents events = memory_events(trace);
  EXPECT_GT(events.allocations, 0U);
  EXPECT_TRUE(events.every_free_has_its_allocation);
  EXPECT_TRUE(events.every_served_free_has_its_size);
}

}  // namespace
}  // namespace cuvmm::test
