// SPDX-License-Identifier: Apache-2.0
#include "sim/settings.hpp"

#include "base/made_once.hpp"

namespace cuvmm::sim {
namespace {

// Several threads may get here at once. They set the log up in the same way, and one of them warns.
SimOptions read_options() {
  static constinit Once warns;
  SimOptions options = SimOptions::from_environment();
  const LogSetup setup{.name = "cuvmm-sim", .level = options.log_level};
  // Cannot fail: the log goes to standard error.
  static_cast<void>(set_up_log(setup).ok());
  if (!warns.first()) return options;
  for (const OptionProblem& problem : options.problems()) {
    CUVMM_LOG(Warning, "%s", problem.text().c_str());
  }
  return options;
}

}  // namespace

const SimOptions& settings() {
  static constinit MadeOnce<const SimOptions> options;
  return options.get(&read_options);
}

}  // namespace cuvmm::sim
