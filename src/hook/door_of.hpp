// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hook/door.hpp"

namespace cuvmm::hook {

// Whether a symbol is one of ours.
bool has_door(const char* symbol);

// The door that stands for what dlsym(library, name) finds, where that is the driver's; else null.
// Leaves errno as it was, and dlerror as the real lookup would.
void* door_for_symbol(void* library, const char* name, void* (*real_dlsym)(void*, const char*));

// The door for a function that cuGetProcAddress answered; null where none of our rows is exactly
// that function. For code that is HookBypass.
void* door_for_function(Engine& engine, void* real);

}  // namespace cuvmm::hook
