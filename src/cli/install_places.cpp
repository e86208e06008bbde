// SPDX-License-Identifier: Apache-2.0
#include "cli/install_places.hpp"

#include <filesystem>

namespace cuvmm::cli {
namespace {

namespace fs = std::filesystem;

// build/bin and prefix/bin have lib beside them; a Debian package has lib/x86_64-linux-gnu; a
// Python package keeps everything in one folder.
Result<std::string> find_beside_us(const char* what, const char* missing) {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) {
    return Error{.kind = ErrorKind::SystemFailed,
                 .system_code = error.value(),
                 .doing = "find our own program"};
  }
  const fs::path here = program.parent_path();
  for (const fs::path& place : {here / "../lib", here / "../lib/x86_64-linux-gnu", here}) {
    const fs::path candidate = place / what;
    if (fs::exists(candidate, error)) return fs::canonical(candidate, error).string();
  }
  return Error{.kind = ErrorKind::NotFound, .doing = missing, .subject = what};
}

}  // namespace

Result<std::string> find_preload_library() {
  return find_beside_us("libcuvmm_preload.so", "find the preload library");
}

Result<std::string> find_sim_directory() {
  const std::string driver =
      TRY(find_beside_us("cuvmm/sim/libcuda.so.1", "find the simulated driver"));
  return fs::path{driver}.parent_path().string();
}

}  // namespace cuvmm::cli
