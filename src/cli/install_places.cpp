// SPDX-License-Identifier: Apache-2.0
#include "cli/install_places.hpp"

#include <cstdlib>
#include <filesystem>
#include <initializer_list>

#include "cli/loadable.hpp"

namespace cuvmm::cli {
namespace {

namespace fs = std::filesystem;

// build/bin and prefix/bin have lib beside them; a Debian package has lib/x86_64-linux-gnu; a
// Python package keeps everything in one folder.
Result<std::string> find_beside_us(const char* what, const char* missing,
                                   std::initializer_list<const char*> places = {
                                       "../lib", "../lib/x86_64-linux-gnu", "."}) {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) {
    return Error{.kind = ErrorKind::SystemFailed,
                 .system_code = error.value(),
                 .doing = "find our own program"};
  }
  for (const char* place : places) {
    const fs::path candidate = program.parent_path() / place / what;
    if (fs::exists(candidate, error)) return fs::canonical(candidate, error).string();
  }
  return Error{.kind = ErrorKind::NotFound, .doing = missing, .subject = what};
}

}  // namespace

Result<std::string> find_preload_library() {
  return loadable(TRY(find_beside_us("libcuvmm_preload.so", "find the preload library")));
}

Result<std::string> find_sim_directory() {
  const std::string driver =
      TRY(find_beside_us("cuvmm/sim/libcuda.so.1", "find the simulated driver"));
  return loadable(fs::path{driver}.parent_path().string());
}

// Installed, in the build tree, and in a Python package of which we are a part.
Result<std::string> find_python_package() {
  const std::string plot =
      TRY(find_beside_us("cuvmm/plot/__main__.py", "find the Python package that draws",
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
  return find_beside_us(name, "find a program of cuvmm's", {".", "../libexec/cuvmm"});
}

}  // namespace cuvmm::cli
