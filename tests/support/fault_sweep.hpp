// SPDX-License-Identifier: Apache-2.0
// Repeats a scenario and fails its first driver call, then its second, until no call fails.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>
#include <string>

#include "support/driver_under_test.hpp"
#include "support/faulty_driver.hpp"
#include "vmm/deferred_release.hpp"

namespace cuvmm::test {

// World: the state that the scenario works on, created again for each repetition over the driver
// that it is given.
template <class World>
struct Scenario {
  std::function<std::unique_ptr<World>(const Driver&)> given;  // nothing fails here
  std::function<Result<void>(World&)> when;                    // each call fails here, in turn
  std::function<void(World&)> then;                            // what must hold if it succeeded
  // Must be unchanged if it failed; includes the contents of memory.
  std::function<std::string(World&)> snapshot;
  std::function<void(World&)> check;  // the validity checks
  // Whether the code recovers by itself if that API function fails with that answer.
  std::function<bool(const std::string& name, CUresult fault)> makes_up_for =
      [](const std::string&, CUresult) { return false; };
};

// Everything that this process still holds, according to the simulated driver; "" on a card, which
// cannot tell.
inline std::string held_by_the_process() {
  if (!simulated()) return "";
  std::array<char, 16384> text{};
  const std::uint64_t count = sim()->leaks(text.data(), text.size());
  return std::to_string(count) + " held:\n" + text.data();
}

// Releases are tried twice before they count as refused, so one failure of these calls may go
// unnoticed.
inline bool gives_back(const std::string& name) {
  return name == "cuMemUnmap" || name == "cuMemRelease" || name == "cuMemAddressFree" ||
         name == "cuEventDestroy";
}

inline constexpr std::uint64_t most_calls_of_a_scenario = 1000;

template <class World>
void for_each_failing_call(const Scenario<World>& scenario, CUresult fault) {
  const std::string held_before = held_by_the_process();
  bool untouched = false;
  for (std::uint64_t number = 1; !untouched && number <= most_calls_of_a_scenario; ++number) {
    SCOPED_TRACE("driver call " + std::to_string(number) + " fails with " + name_of(fault));
    FaultyDriver faulty{driver()};
    {
      const std::unique_ptr<World> world = scenario.given(faulty);
      ASSERT_NE(world, nullptr);
      const std::string before = scenario.snapshot(*world);
      faulty.fail_call(number, fault);
      const Result<void> result = scenario.when(*world);
      const std::string failed = faulty.last_failed();
      untouched = faulty.faults() == 0;
      faulty.stop_failing();

      SCOPED_TRACE("it was " + (failed.empty() ? std::string("none") : failed));
      scenario.check(*world);
      if (result.ok()) {
        EXPECT_TRUE(untouched || gives_back(failed) || scenario.makes_up_for(failed, fault))
            << "the failure went unnoticed";
        scenario.then(*world);
      } else {
        ASSERT_FALSE(untouched) << "it fails untouched: " << result.error().text();
        EXPECT_EQ(result.error().driver_code, static_cast<int>(fault)) << result.error().text();
        EXPECT_STRNE(result.error().doing, "");
        EXPECT_EQ(scenario.snapshot(*world), before) << "after " << result.error().text();
      }
    }
    EXPECT_EQ(retry_releases(), 0u) << "a single failure is no reason to owe the driver anything";
    EXPECT_EQ(held_by_the_process(), held_before);
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_TRUE(untouched) << "more calls than any scenario has";
}

// The same with every later call failing too, so that undoing fails as well. The old state cannot
// be restored then; the bookkeeping must be true, and everything is released once the driver works
// again.
template <class World>
void for_each_call_failing_from(const Scenario<World>& scenario, CUresult fault) {
  const std::string held_before = held_by_the_process();
  bool untouched = false;
  for (std::uint64_t number = 1; !untouched && number <= most_calls_of_a_scenario; ++number) {
    SCOPED_TRACE("from driver call " + std::to_string(number) + " on all fail with " +
                 name_of(fault));
    FaultyDriver faulty{driver()};
    {
      const std::unique_ptr<World> world = scenario.given(faulty);
      ASSERT_NE(world, nullptr);
      faulty.fail_from(number, fault);
      const Result<void> result = scenario.when(*world);
      untouched = faulty.faults() == 0;
      faulty.stop_failing();

      EXPECT_EQ(retry_releases(), 0u) << "the driver works again";
      scenario.check(*world);
      if (result.ok()) {
        scenario.then(*world);
      } else {
        ASSERT_FALSE(untouched) << "it fails untouched: " << result.error().text();
        EXPECT_EQ(result.error().driver_code, static_cast<int>(fault)) << result.error().text();
      }
    }
    EXPECT_EQ(retry_releases(), 0u) << "the driver works again";
    EXPECT_EQ(held_by_the_process(), held_before);
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_TRUE(untouched) << "more calls than any scenario has";
}

// Both sweeps, with each error that a failing driver returns.
template <class World>
void sweep_faults(const Scenario<World>& scenario) {
  for (const CUresult fault : {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN}) {
    for_each_failing_call(scenario, fault);
    for_each_call_failing_from(scenario, fault);
  }
}

}  // namespace cuvmm::test
