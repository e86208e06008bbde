// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "observe/snapshot.hpp"

namespace cuvmm::observe {

// One line of JSON, read by the live view.
std::string print_json(const Snapshot& snapshot);
// One line of JSON with the arenas and windows of one client; empty if no client has that label.
std::string print_client_json(const Snapshot& snapshot, const std::string& label);

}  // namespace cuvmm::observe
