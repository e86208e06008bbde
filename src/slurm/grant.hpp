// SPDX-License-Identifier: Apache-2.0
// GPU memory as Slurm counts it: a generic resource (GRES), so many units on a node.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/size.hpp"

namespace cuvmm::slurm {

struct SlurmGrant {
  std::uint64_t units = 0;
  std::string type;  // "gpu1" where the resource has types; empty where not, or of several
};

// What a list of Slurm's has of a resource: "gpu:1(IDX:0),gpumem:gpu1(CNT:4096)" or, as a step has
// it, "gres:gpumem:4K". Empty where it has none of it.
std::optional<SlurmGrant> granted_of(std::string_view resource, std::string_view list);

// What each task on the node may have; all of it where there is one task. 0 where that is less than
// a byte each.
Size limit_of_task(const SlurmGrant& grant, Size unit, std::uint32_t tasks);

// "gpu1" is the node's device 1.
std::optional<int> device_of(const SlurmGrant& grant);

}  // namespace cuvmm::slurm
