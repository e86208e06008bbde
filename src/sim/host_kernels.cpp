// SPDX-License-Identifier: Apache-2.0
// Looks up the host functions of kernels.
#include <dlfcn.h>

#include <map>
#include <mutex>

#include "base/lock.hpp"
#include "base/made_once.hpp"
#include "sim/module.hpp"

namespace cuvmm::sim {
namespace {

// Kernels that were set explicitly. They take precedence over exported ones.
struct SetKernels {
  static SetKernels& get() {
    static constinit MadeOnce<SetKernels> all;
    return all.get();
  }
  SharedLock lock{LockOrder::SimHandles};  // guards the members below
  std::map<std::string, cuvmm_sim_kernel, std::less<>> kernels;
};

}  // namespace

cuvmm_sim_kernel find_host_kernel(const std::string& entry) {
  {
    SetKernels& set = SetKernels::get();
    const Reading reading{set.lock};
    const auto found = set.kernels.find(entry);
    if (found != set.kernels.end()) return found->second;
  }
  const std::string symbol = "cuvmm_sim_kernel_" + entry;
  return reinterpret_cast<cuvmm_sim_kernel>(dlsym(RTLD_DEFAULT, symbol.c_str()));
}

}  // namespace cuvmm::sim

extern "C" __attribute__((visibility("default"))) void cuvmm_sim_set_kernel(
    const char* entry, cuvmm_sim_kernel kernel) {
  if (entry == nullptr) return;
  auto& set = cuvmm::sim::SetKernels::get();
  const cuvmm::Writing writing{set.lock};
  if (kernel == nullptr) {
    set.kernels.erase(entry);
  } else {
    set.kernels[entry] = kernel;
  }
}
