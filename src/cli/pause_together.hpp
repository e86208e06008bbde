// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <vector>

#include "share/control.hpp"

namespace cuvmm::cli {

// Pauses these processes together, as ranks of a job that wait for each other on their devices have
// to be. A process that cannot be paused does not keep the others from it.
std::map<int, Result<share::ControlAnswer>> pause_together(const std::vector<int>& processes,
                                                           const share::ControlRequest& request,
                                                           share::Deadline until);

}  // namespace cuvmm::cli
