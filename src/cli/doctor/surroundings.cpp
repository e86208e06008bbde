// SPDX-License-Identifier: Apache-2.0
// Checks the system and our own installation.
#include <fmt/core.h>
#include <gnu/libc-version.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>

#include "base/size.hpp"
#include "cli/child.hpp"
#include "cli/doctor/finding.hpp"
#include "cli/install_places.hpp"
#include "cli/preload_version.hpp"
#include "cuvmm/version.h"
#include "share/runtime_socket.hpp"

namespace cuvmm::cli {
namespace {

constexpr rlim_t enough_files = 1024;
constexpr std::uint64_t enough_maps = 65'530;

std::uint64_t number_in(const char* path) {
  std::ifstream file{path};
  std::uint64_t number = 0;
  file >> number;
  return number;
}

Finding version_of(const char* what, const Result<std::string>& place, const std::string& version) {
  if (!place) {
    return {Verdict::Bad, what, place.error().text(), "install cuvmm again, as a whole"};
  }
  if (!version.empty() && version != CUVMM_VERSION_STRING) {
    return {Verdict::Bad, what, fmt::format("{} is of version {}", *place, version),
            "install all parts from one version"};
  }
  return {Verdict::Good, what, version.empty() ? *place : fmt::format("{}, {}", version, *place),
          ""};
}

}  // namespace

Findings look_at_versions(const DoctorRequest&) {
  Findings findings;
  utsname system{};
  ::uname(&system);
  findings.push_back({Verdict::Good, "cuvmm", CUVMM_VERSION_STRING, ""});
  findings.push_back(
      {Verdict::Good, "system",
       fmt::format("{} {}, glibc {}", system.sysname, system.release, gnu_get_libc_version()), ""});
  const auto preload = find_preload_library();
  findings.push_back(version_of("preload library", preload,
                                preload ? version_of_preload(*preload) : std::string{}));
  findings.push_back(version_of("simulated driver", find_sim_directory(), {}));

  const auto package = find_python_package();
  if (!package) {
    findings.push_back({Verdict::Limited, "plots", "no Python package beside this program",
                        "install cuvmm's Python package, or the whole of it"});
    return findings;
  }
  const std::string python = find_python(*package);
  ::setenv("CUVMM_DOCTOR_PYTHON", python.c_str(), 1);
  // Finds matplotlib without importing it, which takes seconds.
  const int status = std::system(
      "\"$CUVMM_DOCTOR_PYTHON\" -c 'import importlib.machinery as m, sys; "
      "sys.exit(m.PathFinder.find_spec(\"matplotlib\") is None)' >/dev/null 2>&1");
  if (status == 0) {
    findings.push_back({Verdict::Good, "matplotlib", fmt::format("in {}", python), ""});
  } else if (WIFEXITED(status) && WEXITSTATUS(status) == exit_not_found) {
    findings.push_back({Verdict::Limited, "plots", fmt::format("{} is not found", python),
                        "apt install python3, or name a Python in CUVMM_PYTHON"});
  } else {
    findings.push_back({Verdict::Limited, "matplotlib",
                        fmt::format("{} has none; pictures need it", python),
                        "apt install python3-matplotlib, or name a Python that has it in "
                        "CUVMM_PYTHON (.html needs only Python)"});
  }
  return findings;
}

Findings look_at_limits(const DoctorRequest&) {
  Findings findings;
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  const bool has_files = files.rlim_cur == RLIM_INFINITY || files.rlim_cur >= enough_files;
  findings.push_back({has_files ? Verdict::Good : Verdict::Limited, "open files",
                      files.rlim_cur == RLIM_INFINITY
                          ? "unlimited"
                          : fmt::format("at most {} open", files.rlim_cur),
                      has_files ? "" : "ulimit -n 4096: sharing needs one per chunk"});
  const std::uint64_t maps = number_in("/proc/sys/vm/max_map_count");
  const bool has_maps = maps >= enough_maps;
  findings.push_back({has_maps ? Verdict::Good : Verdict::Limited, "maps per process",
                      fmt::format("{}", maps),
                      has_maps ? ""
                               : "sysctl vm.max_map_count=65530: the simulated driver needs "
                                 "one a mapping"});
  rlimit addresses{};
  ::getrlimit(RLIMIT_AS, &addresses);
  const bool is_free = addresses.rlim_cur == RLIM_INFINITY;
  findings.push_back({is_free ? Verdict::Good : Verdict::Bad, "addresses",
                      is_free ? "unlimited" : print_size(addresses.rlim_cur),
                      is_free ? ""
                              : "ulimit -v unlimited: cuvmm reserves many addresses and "
                                "little memory"});
  return findings;
}

Findings look_at_sockets(const DoctorRequest&) {
  Findings findings;
  const auto folder = share::private_folder();
  if (folder) {
    findings.push_back({Verdict::Good, "socket folder", *folder, ""});
  } else {
    findings.push_back({Verdict::Limited, "socket folder", folder.error().text(),
                        "set XDG_RUNTIME_DIR to a folder of your own (mode 0700): sharing needs "
                        "one"});
  }
  for (const std::string& usual : share::usual_folders()) {
    const auto found = share::PrivateFolder::open(usual);
    if (found || found.error().kind != ErrorKind::InvalidArgument) continue;
    findings.push_back(
        {Verdict::Limited, "socket folder", usual + " is not used: it is not this user's alone",
         "remove it, or ask its owner to; it should be a folder of yours, mode 0700"});
  }
  return findings;
}

}  // namespace cuvmm::cli
