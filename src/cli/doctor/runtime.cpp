// SPDX-License-Identifier: Apache-2.0
// Checks that a program that uses the CUDA runtime starts on this driver. The runtime asks for
// private tables that no other program needs.
#include <dlfcn.h>
#include <fmt/core.h>

#include "cli/doctor/finding.hpp"
#include "cli/driver_here.hpp"
#include "cli/install_places.hpp"

namespace cuvmm::cli {
namespace {

constexpr const char* runtime_names[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"};

// The runtime's functions, which return 0 on success.
class CudaRuntime {
 public:
  explicit CudaRuntime(void* library) : library_(library) {}

  template <class... Arguments>
  int call(const char* name, Arguments... arguments) const {
    const auto function = reinterpret_cast<int (*)(Arguments...)>(::dlsym(library_, name));
    constexpr int symbol_not_found = 500;
    return function == nullptr ? symbol_not_found : function(arguments...);
  }

  std::string name_of(int error) const {
    const auto names =
        reinterpret_cast<const char* (*)(int)>(::dlsym(library_, "cudaGetErrorName"));
    return names == nullptr ? std::to_string(error) : names(error);
  }

 private:
  void* library_;
};

// Does what a small program does first.
int try_out(const CudaRuntime& runtime) {
  int count = 0;
  void* memory = nullptr;
  if (const int error = runtime.call("cudaGetDeviceCount", &count); error != 0) return error;
  if (const int error = runtime.call("cudaSetDevice", 0); error != 0) return error;
  constexpr std::size_t size = 1 << 20;
  if (const int error = runtime.call("cudaMalloc", &memory, size); error != 0) return error;
  if (const int error = runtime.call("cudaMemset", memory, 1, size); error != 0) return error;
  return runtime.call("cudaFree", memory);
}

}  // namespace

Findings look_at_runtime(const DoctorRequest& request) {
  if (request.simulated) {
    // Runtimes load the driver by this name, and find the library that is already loaded.
    const auto simulated = find_sim_directory();
    if (!simulated || ::dlopen((*simulated + "/libcuda.so.1").c_str(), RTLD_NOW) == nullptr)
      return {};
  } else if (!has_driver()) {
    return {};
  }
  for (const char* name : runtime_names) {
    void* library = ::dlopen(name, RTLD_NOW);
    if (library == nullptr) continue;
    const CudaRuntime runtime{library};
    int version = 0;
    runtime.call("cudaRuntimeGetVersion", &version);
    const int error = try_out(runtime);
    const std::string which = fmt::format("{}.{}, {}", version / 1000, version % 1000 / 10, name);
    if (error == 0) {
      return {{Verdict::Good, "CUDA runtime", which + ": starts and allocates memory", ""}};
    }
    constexpr int driver_too_old = 35;
    return {{error == driver_too_old ? Verdict::Limited : Verdict::Bad, "CUDA runtime",
             fmt::format("{}: answers {}", which, runtime.name_of(error)),
             error == driver_too_old
                 ? "this runtime needs a newer driver"
                 : "a warning of the driver's names the private table that is missing, if one is"}};
  }
  return {{Verdict::Good, "CUDA runtime", "none on the library path: not tried", ""}};
}

}  // namespace cuvmm::cli
