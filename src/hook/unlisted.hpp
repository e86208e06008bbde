// SPDX-License-Identifier: Apache-2.0
// Driver functions in neither driver_api.def nor not_hooked.def, such as those that a newer driver
// adds. Their arguments are unknown, so programs get an entry that only jumps to the function. The
// first call of any of them ends full coverage (engine/hook_coverage.hpp).
#pragma once

#include <cstddef>
#include <string_view>

#include "engine/engine.hpp"

namespace cuvmm::hook {

// The entry in front of `real`, or `real` itself if the function is known to be harmless
// (not_hooked.def). `name` and `version` are those passed to cuGetProcAddress.
void* entry_of_unlisted(const char* name, int version, void* real);

// The same for a symbol passed to dlsym.
void* entry_of_unlisted_symbol(const char* symbol, void* real);

// Whether a symbol is named like the driver's functions, is on neither list, and may touch memory
// or work.
bool is_unlisted(std::string_view symbol);

// Ends hook coverage and settles all pending work, so that no shortcut that relies on coverage is
// taken from then on. Returns true if coverage was full before: the caller then logs the reason.
bool settle_and_end_coverage(Engine& engine);

// The same from outside any hooked call. Without a running engine, only coverage ends.
bool settle_and_end_coverage_of_process();

// The number of entries. If more functions are needed, handing one out ends full coverage.
inline constexpr std::size_t most_unlisted = 512;

}  // namespace cuvmm::hook
