// SPDX-License-Identifier: Apache-2.0
// Driver functions in neither driver_api.def nor not_hooked.def, such as those that a newer driver
// adds. Their arguments are unknown, so programs get an entry that only jumps to the function. The
// first call of any of them ends full coverage (engine/hook_coverage.hpp).
#pragma once

#include <cstddef>

#include "engine/engine.hpp"

namespace cuvmm::hook {

// The entry in front of `real`, or `real` itself if the function is known to be harmless
// (not_hooked.def). `name` and `version` are those passed to cuGetProcAddress.
void* entry_of_unlisted(const char* name, int version, void* real);

// The same for a symbol passed to dlsym.
void* entry_of_unlisted_symbol(const char* symbol, void* real);

// Ends hook coverage and settles all pending work, so that no shortcut that relies on coverage is
// taken from then on. The caller logs the reason if coverage was full before.
void settle_and_end_coverage(Engine& engine);

// The number of entries. If more functions are needed, handing one out ends full coverage.
inline constexpr std::size_t most_unlisted = 512;

}  // namespace cuvmm::hook
