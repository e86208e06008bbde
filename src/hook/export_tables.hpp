// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "driver/cuda.hpp"

namespace cuvmm::hook {

// Whether this private driver table is known to offer no unseen way to submit work or to touch
// memory (driver/export_tables.def).
bool is_known_export_table(const CUuuid& id);

// In the list's format, null-terminated.
std::array<char, 37> text_of(const CUuuid& id);

}  // namespace cuvmm::hook
