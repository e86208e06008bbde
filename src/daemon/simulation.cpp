// SPDX-License-Identifier: Apache-2.0
#include "daemon/simulation.hpp"

#include <algorithm>
#include <cstdlib>

#include "base/installed_file.hpp"
#include "base/option_types.hpp"
#include "base/sim_options.hpp"

namespace cuvmm::daemon {

std::optional<std::string> set_simulation(const std::string& text) {
  std::string_view rest{text};
  while (!rest.empty()) {
    const std::string_view part = rest.substr(0, rest.find_first_of(",\n"));
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    if (part == "true") continue;  // the flag without a value
    const std::size_t equals = part.find('=');
    std::string name = "VMM_SIM_";
    for (const char letter : part.substr(0, equals)) name.push_back(upper(letter));
    const std::string value{equals == std::string_view::npos ? "" : part.substr(equals + 1)};
    SimOptions options;
    if (const auto problem = options.set(name, value, Origin::CommandLine)) {
      return "--sim: " + problem->text();
    }
    ::setenv(name.c_str(), value.c_str(), 1);
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
