// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "hook/door.hpp"

namespace cuvmm::hook {

// A lower-case "cu" and an upper-case letter.
inline bool is_named_like_the_drivers(std::string_view symbol) {
  return symbol.size() > 2 && symbol[0] == 'c' && symbol[1] == 'u' && symbol[2] >= 'A' &&
         symbol[2] <= 'Z';
}

// Whether this driver symbol has a door.
bool has_door(std::string_view symbol);

// Whether a driver is loaded that has the function.
bool driver_has(const char* symbol);

// If the lookup finds a function of the driver, its door; otherwise the lookup's own result.
struct FoundSymbol {
  void* address = nullptr;
  bool is_of_driver = false;
};

// Performs dlsym(library, name) for the program. Finds nothing under a HookBypass. Preserves errno;
// sets dlerror as the real lookup would.
FoundSymbol door_for_symbol(void* library, const char* name,
                            void* (*real_dlsym)(void*, const char*));

// The door for a function returned by cuGetProcAddress; nullptr if no row is exactly that function.
// The caller holds a HookBypass.
void* door_for_function(Engine& engine, void* real);

}  // namespace cuvmm::hook
