// SPDX-License-Identifier: Apache-2.0
// GPU memory as Slurm counts it: units of a generic resource (GRES) on a node.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/size.hpp"

namespace cuvmm::slurm {

struct SlurmGrant {
  std::uint64_t units = 0;
  std::string type;  // "gpu1" if the resource has types; empty if not, or if there are several
};

// The units of a resource in a list of Slurm's: "gpu:1(IDX:0),gpumem:gpu1(CNT:4096)" or, for a
// step, "gres:gpumem:4K". Empty if the list does not contain the resource.
std::optional<SlurmGrant> granted_of(std::string_view resource, std::string_view list);

// The limit of each task on the node: an equal part of the grant. 0 if that is less than a byte.
Size limit_of_task(const SlurmGrant& grant, Size unit, std::uint32_t tasks);

// The device of a grant's type: "gpu1" is the node's device 1.
std::optional<int> device_of(const SlurmGrant& grant);

}  // namespace cuvmm::slurm
