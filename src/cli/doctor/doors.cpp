// SPDX-License-Identifier: Apache-2.0
// Checks that calls through every door to the driver reach cuvmm. Starts a process under the
// preload library, like any program, which checks its own doors.
#include <dlfcn.h>
#include <fmt/core.h>

#include <cstdio>
#include <filesystem>

#include "cli/doctor/finding.hpp"
#include "cli/driver_here.hpp"
#include "cli/environment.hpp"
#include "cli/install_places.hpp"
#include "driver/cuda.hpp"

namespace cuvmm::cli {
namespace {

bool is_ours(const void* function) {
  Dl_info where{};
  return function != nullptr && ::dladdr(function, &where) != 0 && where.dli_fname != nullptr &&
         std::string_view{where.dli_fname}.find("libcuvmm_preload.so") != std::string_view::npos;
}

using GetProcAddress = CUresult (*)(const char*, void**, int, cuuint64_t,
                                    CUdriverProcAddressQueryResult*);

}  // namespace

int try_doors() {
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) {
    fmt::print("the driver cannot be opened: {}\n", ::dlerror());
    return 1;
  }
  if (!is_ours(::dlsym(RTLD_DEFAULT, "cuMemAlloc_v2")))
    fmt::print("a program linked to the driver\n");
  if (!is_ours(::dlsym(library, "cuMemAlloc_v2"))) fmt::print("dlsym\n");
  const auto look_up = reinterpret_cast<GetProcAddress>(::dlsym(library, "cuGetProcAddress_v2"));
  void* found = nullptr;
  CUdriverProcAddressQueryResult how{};
  if (look_up != nullptr && look_up("cuMemAlloc", &found, 12000, 0, &how) == CUDA_SUCCESS &&
      !is_ours(found)) {
    fmt::print("cuGetProcAddress\n");
  }
  return 0;
}

Findings look_at_doors(const DoctorRequest& request) {
  const auto preload = find_preload_library();
  if (!preload) return {};  // reported by look_at_versions()
  if (request.simulated || !has_driver()) {
    const auto simulated = find_sim_directory();
    if (!simulated) return {};
    put_first("LD_LIBRARY_PATH", *simulated);
  }
  std::error_code error;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe", error).string();
  ::setenv("CUVMM_DOCTOR_SELF", self.c_str(), 1);
  ::setenv("CUVMM_DOCTOR_PRELOAD", preload->c_str(), 1);
  FILE* child = ::popen(
      "LD_PRELOAD=\"${LD_PRELOAD:+$LD_PRELOAD:}$CUVMM_DOCTOR_PRELOAD\" "
      "exec \"$CUVMM_DOCTOR_SELF\" doctor --doors 2>&1",
      "r");
  std::string said;
  char part[512];
  while (child != nullptr && std::fgets(part, sizeof part, child) != nullptr) said += part;
  const int status = child != nullptr ? ::pclose(child) : -1;
  for (char& letter : said) letter = letter == '\n' ? ' ' : letter;
  if (status != 0) {
    return {{Verdict::Bad, "preload",
             fmt::format("a program under it ended with {}: {}", status, said),
             "ldd " + *preload + " shows what is missing"}};
  }
  if (!said.empty()) {
    return {{Verdict::Bad, "preload", "calls go past it by: " + said,
             "another preloaded library answers lookups itself: look at LD_PRELOAD"}};
  }
  return {{Verdict::Good, "preload", "sees symbols, dlsym and cuGetProcAddress", ""}};
}

}  // namespace cuvmm::cli
