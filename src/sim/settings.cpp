// SPDX-License-Identifier: Apache-2.0
#include "sim/settings.hpp"

namespace cuvmm::sim {
namespace {

SimOptions* read_once() {
  auto* options = new SimOptions{SimOptions::from_environment()};
  const LogSetup setup{.name = "cuvmm-sim", .level = options->log_level};
  // Cannot fail: the log goes to standard error.
  static_cast<void>(set_up_log(setup).ok());
  for (const OptionProblem& problem : options->problems()) {
    CUVMM_LOG(Warning, "%s", problem.text().c_str());
  }
  return options;
}

}  // namespace

const SimOptions& settings() {
  static const SimOptions* options = read_once();  // outlives every thread
  return *options;
}

}  // namespace cuvmm::sim
