// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <vector>

#include "share/control.hpp"

namespace cuvmm::cli {

// Pauses these processes together, as ranks of a job that wait for each other on their devices have
// to be. A process that cannot be paused within the timeout does not keep the others from it.
// `until` bounds everything, copies included.
std::map<int, Result<share::ControlAnswer>> pause_together(const std::vector<int>& processes,
                                                           share::ControlRequest request,
                                                           Duration timeout, share::Deadline until);

}  // namespace cuvmm::cli
