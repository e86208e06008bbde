// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "replay/replay_trace.hpp"

namespace cuvmm::cli {

// The output of `cuvmm stats` for recordings of PyTorch and RMM.
void print_foreign_stats(const replay::ReplayTrace& trace, bool json);

}  // namespace cuvmm::cli
