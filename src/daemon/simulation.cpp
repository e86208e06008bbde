// SPDX-License-Identifier: Apache-2.0
#include "daemon/simulation.hpp"

#include <cstdlib>
#include <vector>

#include "base/installed_file.hpp"
#include "base/sim_flag.hpp"
#include "base/sim_options.hpp"

namespace cuvmm::daemon {

std::optional<std::string> set_simulation(std::string_view flag) {
  std::vector<SimSetting> settings;
  if (auto problem = split_sim_flag(flag, settings)) return problem;
  SimOptions options;
  for (const SimSetting& one : settings) {
    if (const auto problem = options.set(one.variable, one.value, Origin::CommandLine)) {
      return "--sim: " + problem->text();
    }
    ::setenv(one.variable.c_str(), one.value.c_str(), 1);
  }
  return {};
}

Result<observe::Nvml> load_nvml(bool is_simulated) {
  if (!is_simulated) return observe::Nvml::load();
  const std::string library = TRY(find_installed_file("cuvmm/sim/libnvidia-ml.so.1",
                                                      "find the simulated driver's libnvidia-ml"));
  return observe::Nvml::load(library.c_str());
}

}  // namespace cuvmm::daemon
