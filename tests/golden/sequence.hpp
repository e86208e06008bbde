// SPDX-License-Identifier: Apache-2.0
// Compares the driver calls of a scenario with the checked-in list of them.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "golden/recorded_driver.hpp"
#include "support/driver_under_test.hpp"
#include "support/faulty_driver.hpp"
#include "vmm/deferred_release.hpp"

namespace cuvmm::test {

// Set by --update: writes the lists instead of comparing them.
extern bool updates_sequences;

// Compares with tests/golden/sequences/NAME.txt.
void expect_sequence(const std::string& name, const std::string& found);

// What `act` calls: when nothing fails; then from each failing call on, for the first, second, …
// call of every function that changes what backs an address.
template <class World>
std::string sequences(const std::function<std::unique_ptr<World>(const Driver&)>& given,
                      const std::function<std::string(World&)>& act) {
  const auto once = [&](const std::function<void(FaultyDriver&)>& fail, std::uint64_t& faults) {
    FaultyDriver faulty{driver()};
    RecordedDriver recorded{faulty};
    std::string lines;
    {
      const std::unique_ptr<World> world = given(recorded);
      (void)recorded.take_lines();
      fail(faulty);
      const std::string outcome = act(*world);
      lines = recorded.take_lines() + "= " + outcome + "\n";
      faults = faulty.faults();
      faulty.stop_failing();
    }
    EXPECT_EQ(retry_releases(), 0u);  // or a later one would ask this driver
    return lines;
  };
  std::uint64_t faults = 0;
  const std::string untouched = once([](FaultyDriver&) {}, faults);
  std::string text = "# Nothing fails.\n" + untouched;
  for (const Call call : {Call::cuMemCreate, Call::cuMemMap, Call::cuMemSetAccess, Call::cuMemUnmap,
                          Call::cuMemRelease}) {
    for (std::uint64_t number = 1;; ++number) {
      const std::string lines =
          once([&](FaultyDriver& faulty) { faulty.fail_call(call, number, CUDA_ERROR_UNKNOWN); },
               faults);
      if (faults == 0) break;
      // Everything before the failing call is as above.
      const std::size_t failing = lines.rfind('\n', lines.find("CUDA_ERROR_UNKNOWN"));
      const std::size_t from = failing == std::string::npos ? 0 : failing + 1;
      EXPECT_EQ(lines.substr(0, from), untouched.substr(0, from));
      text += "\n# " + std::string{info(call).name} + " fails, call " + std::to_string(number) +
              ".\n" + lines.substr(from);
    }
  }
  return text;
}

}  // namespace cuvmm::test
