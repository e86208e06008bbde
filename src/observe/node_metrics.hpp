// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "observe/exposition.hpp"
#include "observe/snapshot.hpp"

namespace cuvmm::observe {

// All families (docs/metrics.md), in the order of the output.
std::span<const Metric> all_metrics();

// Prints all families, including those without samples.
std::string print_metrics(const Snapshot& snapshot, MetricFormat format);

}  // namespace cuvmm::observe
