// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/libraries.hpp"

#include <cstdlib>
#include <fstream>
#include <string>

#include "base/installed_file.hpp"
#include "share/process.hpp"

namespace cuvmm::checkpoint {
namespace {

// The simulated driver finds the process's card by the same variables.
void adopt_simulated_card(pid_t process) {
  std::ifstream environment{share::proc_folder_of(process) + "/environ", std::ios::binary};
  for (std::string word; std::getline(environment, word, '\0');) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos) continue;
    const std::string name = word.substr(0, equals);
    if (name == "VMM_SIM_CARD" || name == "VMM_SIM_DRIVER") {
      ::setenv(name.c_str(), word.c_str() + equals + 1, 1);
    }
  }
}

Result<std::string> library_of(bool simulated_driver, const char* name) {
  if (!simulated_driver) return std::string{name};
  const std::string driver =
      TRY(find_installed_file("cuvmm/sim/libcuda.so.1", "find the simulated driver"));
  return driver.substr(0, driver.rfind('/') + 1) + name;
}

Result<ProcessCheckpoint> load_checkpoint(pid_t process, bool simulated_driver) {
  return ProcessCheckpoint::of(process, TRY(library_of(simulated_driver, "libcuda.so.1")));
}

std::optional<observe::Nvml> load_nvml(bool simulated_driver, Libraries::For purpose) {
  const auto library = library_of(simulated_driver, "libnvidia-ml.so.1");
  if (!library.ok()) return {};
  auto nvml = observe::Nvml::load(library->c_str());
  if (!nvml.ok()) return {};
  if (purpose == Libraries::For::Pause) {
    for (std::uint32_t device = 0; nvml->use(device); ++device) {
    }
  }
  return std::move(*nvml);
}

}  // namespace

// The environment first, since the libraries read it.
Libraries::Libraries(pid_t process, For purpose) {
  const bool simulated_driver = is_simulated(process);
  if (simulated_driver) adopt_simulated_card(process);
  // The process may use devices that this variable hides here.
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  loading_checkpoint_ = std::async(std::launch::async, &load_checkpoint, process, simulated_driver);
  loading_nvml_ = std::async(std::launch::async, &load_nvml, simulated_driver, purpose);
}

Result<ProcessCheckpoint>& Libraries::checkpoint() {
  if (!checkpoint_) checkpoint_.emplace(loading_checkpoint_.get());
  return *checkpoint_;
}

const std::optional<observe::Nvml>& Libraries::nvml() {
  if (!nvml_) nvml_.emplace(loading_nvml_.get());
  return *nvml_;
}

}  // namespace cuvmm::checkpoint
