// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hook/door.hpp"

namespace cuvmm::hook {

// Whether this driver symbol has a door.
bool has_door(const char* symbol);

// Performs dlsym(library, name) for the program. Returns the door if the lookup finds a function of
// the driver, otherwise the lookup's own result. Returns nullptr under a HookBypass. Preserves
// errno; sets dlerror as the real lookup would.
void* door_for_symbol(void* library, const char* name, void* (*real_dlsym)(void*, const char*));

// The door for a function returned by cuGetProcAddress; nullptr if no row is exactly that function.
// The caller holds a HookBypass.
void* door_for_function(Engine& engine, void* real);

}  // namespace cuvmm::hook
