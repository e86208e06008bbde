// SPDX-License-Identifier: Apache-2.0
// One program, every way to reach the driver: it behaves as without cuvmm, and the trace has all of
// its memory.
#include <gtest/gtest.h>

#include "preload/run_program.hpp"
#include "preload/traces.hpp"

namespace cuvmm::test {
namespace {

struct Route {
  const char* name;
  const char* program;
  std::vector<std::string> words;
};

class EveryRoute : public ::testing::TestWithParam<Route> {
 protected:
  static std::vector<std::string> command() {
    std::vector<std::string> all{program(GetParam().program)};
    all.insert(all.end(), GetParam().words.begin(), GetParam().words.end());
    return all;
  }
};

// The allocations of memory_program: four blocking, two stream-ordered, one pitched, one managed,
// one on the host; two that no card can grant.
constexpr std::uint64_t granted = 12;
constexpr std::uint64_t refused = 2;

void expect_all_memory_in(const std::string& trace) {
  const MemoryEvents events = memory_events(trace);
  EXPECT_EQ(events.allocations, granted);
  EXPECT_EQ(events.failed_allocations, refused);
  EXPECT_EQ(events.frees, granted);
  EXPECT_TRUE(events.every_free_has_its_allocation);
}

TEST_P(EveryRoute, BehavesTheSameWhenMonitored) {
  const std::string trace = own_folder() + "/run.trace";
  const Finished alone = run_program(command(), natively());
  ASSERT_EQ(alone.status, 0) << alone.err << alone.out;

  const Finished monitored =
      run_program(command(), under_cuvmm({{"VMM_MODE", "MONITOR"}, {"VMM_TRACE_FILE", trace}}));

  EXPECT_EQ(monitored.status, 0) << monitored.err;
  EXPECT_EQ(monitored.out, alone.out);
  EXPECT_EQ(monitored.err, alone.err);
  expect_all_memory_in(trace);
}

TEST_P(EveryRoute, BehavesTheSameWhenServed) {
  const std::string trace = own_folder() + "/run.trace";
  const Finished alone = run_program(command(), natively());
  ASSERT_EQ(alone.status, 0) << alone.err << alone.out;

  const Finished served =
      run_program(command(), under_cuvmm({{"VMM_MODE", "VMM"}, {"VMM_TRACE_FILE", trace}}));

  EXPECT_EQ(served.status, 0) << served.err;
  EXPECT_EQ(served.out, alone.out);
  expect_all_memory_in(trace);
}

TEST_P(EveryRoute, IsLeftAloneWhenOff) {
  const std::string trace = own_folder() + "/run.trace";
  const Finished alone = run_program(command(), natively());

  const Finished off =
      run_program(command(), under_cuvmm({{"VMM_MODE", "OFF"}, {"VMM_TRACE_FILE", trace}}));

  EXPECT_EQ(off.out, alone.out);
  EXPECT_EQ(off.err, alone.err);
  EXPECT_FALSE(file_exists(trace));
}

INSTANTIATE_TEST_SUITE_P(
    Doors, EveryRoute,
    ::testing::Values(Route{"Linked", "memory_linked", {"linked"}},
                      Route{"LinkedAndByDlsym", "memory_linked", {"dlsym"}},
                      Route{"ByDlsym", "memory", {"dlsym"}},
                      Route{"ByProcAddress11030", "memory", {"proc", "11030", "0"}},
                      Route{"ByProcAddress11070", "memory", {"proc", "11070", "1"}},
                      Route{"ByProcAddress12000", "memory", {"proc", "12000", "0"}},
                      Route{"ByProcAddress13000", "memory", {"proc", "13000", "0"}},
                      Route{"ByProcAddressPerThread", "memory", {"proc", "13000", "2"}}),
    [](const auto& route) { return route.param.name; });

}  // namespace
}  // namespace cuvmm::test
