// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "observe/exposition.hpp"
#include "observe/snapshot.hpp"

namespace cuvmm::observe {

// Every family there is (docs/metrics.md), in the order in which they are written.
std::span<const Metric> all_metrics();

// All families, those without a sample too.
std::string print_metrics(const Snapshot& snapshot, MetricFormat format);

}  // namespace cuvmm::observe
