// SPDX-License-Identifier: Apache-2.0
// Names the group of processes that belong to one job of a scheduler, and so may wait for each
// other.
#pragma once

#include <string>
#include <string_view>

namespace cuvmm::node {

// By the text of /proc/PID/cgroup: a Slurm step ("slurm-7.0") or a Kubernetes pod. Empty for all
// other cgroups, since a login session or a service says nothing about who waits for whom.
std::string group_of_cgroups(std::string_view text);

// By the variables that Slurm and Ray set for their processes. Empty if there are none.
std::string group_of_environment();

}  // namespace cuvmm::node
