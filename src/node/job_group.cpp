// SPDX-License-Identifier: Apache-2.0
#include "node/job_group.hpp"

#include <algorithm>
#include <cstdlib>

namespace cuvmm::node {
namespace {

constexpr std::string_view job_begins = "job_";
constexpr std::string_view step_begins = "step_";

std::string_view take_until(std::string_view& text, char end) {
  const std::size_t at = std::min(text.find(end), text.size());
  const std::string_view part = text.substr(0, at);
  text.remove_prefix(std::min(at + 1, text.size()));
  return part;
}

bool is_number(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](char letter) { return letter >= '0' && letter <= '9'; });
}

// "kubepods-burstable-podUID.slice" or, with cgroupfs, "podUID".
std::string_view pod_of(std::string_view part) {
  constexpr std::string_view slice = ".slice";
  if (part.ends_with(slice)) part.remove_suffix(slice.size());
  if (part.starts_with("kubepods")) {
    const std::size_t at = part.rfind("-pod");
    return at == part.npos ? std::string_view{} : part.substr(at + 4);
  }
  return part.starts_with("pod") ? part.substr(3) : std::string_view{};
}

std::string group_of_path(std::string_view path) {
  const bool is_slurms = path.find("slurm") != path.npos;
  const bool is_kubernetes = path.find("/kubepods") != path.npos;
  std::string job;
  while (!path.empty()) {
    const std::string_view part = take_until(path, '/');
    if (is_kubernetes && !pod_of(part).empty()) return "pod-" + std::string{pod_of(part)};
    if (!is_slurms) continue;
    if (part.starts_with(job_begins) && is_number(part.substr(job_begins.size()))) {
      job = "slurm-" + std::string{part.substr(job_begins.size())};
    } else if (!job.empty() && part.starts_with(step_begins)) {
      // Special steps, as a batch script's, belong to the job as a whole.
      const std::string_view step = part.substr(step_begins.size());
      return is_number(step) ? job + "." + std::string{step} : job;
    }
  }
  return job;
}

}  // namespace

std::string group_of_cgroups(std::string_view text) {
  while (!text.empty()) {
    std::string_view line = take_until(text, '\n');
    take_until(line, ':');  // the hierarchy's number
    take_until(line, ':');  // its controllers
    if (std::string group = group_of_path(line); !group.empty()) return group;
  }
  return {};
}

std::string group_of_environment() {
  if (const char* const job = ::secure_getenv("SLURM_JOB_ID")) {
    const char* const step = ::secure_getenv("SLURM_STEP_ID");
    return std::string{"slurm-"} + job + (step != nullptr ? std::string{"."} + step : "");
  }
  if (const char* const job = ::secure_getenv("RAY_JOB_ID")) return std::string{"ray-"} + job;
  return {};
}

}  // namespace cuvmm::node
