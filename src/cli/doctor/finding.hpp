// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace cuvmm::cli {

enum class Verdict { Good, Doubtful, Bad };

// One thing that was looked at.
struct Finding {
  Verdict verdict = Verdict::Good;
  std::string what;  // "driver"
  std::string text;  // "13.0, by libcuda.so.1"
  std::string mend;  // what to do about it; empty where all is well
};
using Findings = std::vector<Finding>;

// What is looked at. Each is run in a process of its own, so that one that crashes, or hangs in a
// broken driver, stops no other.
struct DoctorRequest {
  bool simulated = false;  // of what is under the programs
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

// The check's findings, or one that says how it ended.
Findings look_in_a_child(const Check& check, const DoctorRequest& request);

// What `cuvmm doctor --doors` does under the preload library: a line for each door that leads past
// it on standard output, none where all is well.
int try_doors();

}  // namespace cuvmm::cli
