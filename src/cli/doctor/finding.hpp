// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace cuvmm::cli {

enum class Verdict { Good, Limited, Bad };

// The result of one check.
struct Finding {
  Verdict verdict = Verdict::Good;
  std::string what;    // "driver"
  std::string text;    // "13.0, by libcuda.so.1"
  std::string remedy;  // empty if there is no problem
};
using Findings = std::vector<Finding>;

// The checks. Each runs in its own process, so that one that crashes, or hangs in a broken driver,
// does not stop the others.
struct DoctorRequest {
  bool simulated = false;  // check the simulated driver
};
struct Check {
  const char* name;
  Findings (*look)(const DoctorRequest& request);
};

Findings look_at_versions(const DoctorRequest& request);
Findings look_at_limits(const DoctorRequest& request);
Findings look_at_sockets(const DoctorRequest& request);
Findings look_at_driver(const DoctorRequest& request);
Findings look_at_runtime(const DoctorRequest& request);
Findings look_at_doors(const DoctorRequest& request);

// Runs the check in a child process. Returns its findings, or one finding on how the child ended.
Findings look_in_a_child(const Check& check, const DoctorRequest& request);

// Implements `cuvmm doctor --doors`, which runs under the preload library. Prints one line to
// standard output for each door that bypasses the library, and nothing if there is none.
int try_doors();

}  // namespace cuvmm::cli
