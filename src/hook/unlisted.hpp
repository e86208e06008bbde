// SPDX-License-Identifier: Apache-2.0
// Functions of the driver that are in neither driver_api.def nor not_hooked.def, as a newer driver
// has them. Nothing is known of their arguments, so they are handed out behind an entry that only
// jumps on; the first call of any of them ends full coverage (engine/hook_coverage.hpp).
#pragma once

#include <cstddef>

#include "engine/engine.hpp"

namespace cuvmm::hook {

// The entry that stands before `real`, or `real` where this function is known to change nothing
// (not_hooked.def). By the name that cuGetProcAddress was asked for, and the version.
void* entry_of_unlisted(const char* name, int version, void* real);

// The same by the name that dlsym was asked for.
void* entry_of_unlisted_symbol(const char* symbol, void* real);

// All that was pending is settled, while it is still true that all was seen so far; from then on no
// shortcut is taken that relies on it. The caller says why, where it is the first.
void settle_and_lose_sight(Engine& engine);

// What there are entries for. A function beyond them ends full coverage when it is handed out.
inline constexpr std::size_t most_unlisted = 512;

}  // namespace cuvmm::hook
