// SPDX-License-Identifier: Apache-2.0
#include "cli/install_places.hpp"

#include <cstdlib>
#include <filesystem>

#include "base/installed_file.hpp"
#include "cli/loadable.hpp"

namespace cuvmm::cli {
namespace fs = std::filesystem;

Result<std::string> find_preload_library() {
  return loadable(TRY(find_installed_file("libcuvmm_preload.so", "find the preload library")));
}

Result<std::string> find_sim_directory() {
  const std::string driver =
      TRY(find_installed_file("cuvmm/sim/libcuda.so.1", "find the simulated driver"));
  return loadable(fs::path{driver}.parent_path().string());
}

// Looks in an installation, in the build tree, and in a Python package that contains us.
Result<std::string> find_python_package() {
  const std::string plot =
      TRY(find_installed_file("cuvmm/plot/__main__.py", "find the Python package that draws",
                              {"../share/cuvmm/python", "../../python", "../../.."}));
  return fs::path{plot}.parent_path().parent_path().parent_path().string();
}

std::string find_python(const std::string& package_folder) {
  if (const char* chosen = std::getenv("CUVMM_PYTHON"); chosen != nullptr && *chosen != '\0') {
    return chosen;
  }
  const fs::path own = fs::path{package_folder}.parent_path() / ".venv/bin/python";
  std::error_code error;
  return fs::exists(own, error) ? own.string() : "python3";
}

Result<std::string> find_program(const char* name) {
  return find_installed_file(name, "find a program of cuvmm's", {".", "../libexec/cuvmm"});
}

}  // namespace cuvmm::cli
