// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "replay/replay_trace.hpp"

namespace cuvmm::cli {

// What `cuvmm stats` says of what PyTorch or RMM recorded.
void print_foreign_stats(const replay::ReplayTrace& trace, bool json);

}  // namespace cuvmm::cli
