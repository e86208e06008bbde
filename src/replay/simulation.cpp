// SPDX-License-Identifier: Apache-2.0
#include "replay/simulation.hpp"

#include <dlfcn.h>

#include <cstdlib>

#include "base/sim_options.hpp"

namespace cuvmm::replay {
namespace {

// Results must depend on the trace and the request only, not on the caller's environment, so this
// overrides all settings of the simulated driver. It reads them at its first call.
void set_up(Size card_memory) {
  for (const OptionRow& row : SimOptions::rows()) ::unsetenv(row.name);
  ::setenv("VMM_SIM_DEVICES", "1", 1);
  ::setenv("VMM_SIM_BACKING", "none", 1);
  ::setenv("VMM_SIM_MEMORY", std::to_string(card_memory).c_str(), 1);
}

Error not_simulated(const char* why) {
  return {.kind = ErrorKind::DriverMissing, .doing = "load the simulated driver", .subject = why};
}

}  // namespace

Result<Simulation> Simulation::start(const std::string& path, Size card_memory) {
  set_up(card_memory);
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);  // never unloaded
  if (library == nullptr) return not_simulated("it cannot be opened");
  Simulation made;
  const auto find = [&](auto& function, const char* name) {
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    return function != nullptr;
  };
  if (!find(made.read_counters_, "cuvmm_sim_read_counters") ||
      !find(made.modelled_us_, "cuvmm_sim_modelled_microseconds") ||
      !find(made.calls_, "cuvmm_sim_calls")) {
    return not_simulated("it is another driver");
  }

  made.driver_ = std::make_shared<const Driver>(TRY(load_driver(path.c_str())));
  const Driver& driver = *made.driver_;
  CUdevice device = 0;
  CUcontext context = nullptr;
  std::size_t memory = 0;
  constexpr const char* step = "start the simulated driver";
  TRY(driver.check(driver.cuInit(0), step));
  TRY(driver.check(driver.cuDeviceGet(&device, 0), step));
  TRY(driver.check(driver.cuDeviceTotalMem(&memory, device), step));
  TRY(driver.check(driver.cuDevicePrimaryCtxRetain(&context, device), step));
  TRY(driver.check(driver.cuCtxSetCurrent(context), step));
  made.card_memory_ = memory;
  made.modelled_us_before_ = made.modelled_us_();
  return made;
}

Size Simulation::physical_peak() const {
  cuvmm_sim_counters counters{};
  read_counters_(0, &counters);
  return counters.physical_peak_bytes;
}

}  // namespace cuvmm::replay
