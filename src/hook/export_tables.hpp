// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "driver/cuda.hpp"

namespace cuvmm::hook {

// Whether nobody submits work or touches memory unseen through this private table of the driver's
// (driver/export_tables.def).
bool is_known_export_table(const CUuuid& id);

// As it stands in the list, with a 0 behind it.
std::array<char, 37> text_of(const CUuuid& id);

}  // namespace cuvmm::hook
