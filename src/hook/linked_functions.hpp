// SPDX-License-Identifier: Apache-2.0
// Driver functions on neither list (hook/unlisted.hpp) that a library is linked to. Their calls
// pass through no door, so such a library ends full coverage before it can use the driver.
#pragma once

#include <string_view>

#include "engine/engine.hpp"

namespace cuvmm::hook {

// Whether a library makes this call before it first submits work.
constexpr bool begins_a_librarys_use(std::string_view name) {
  for (const std::string_view start :
       {"cuInit", "cuDevicePrimaryCtxRetain", "cuCtxCreate", "cuModuleLoad", "cuModuleGetFunction",
        "cuLibraryLoad", "cuLibraryGet", "cuStreamCreate", "cuEventCreate"}) {
    if (name.starts_with(start)) return true;
  }
  return false;
}

// Examines all loaded libraries if any was loaded since the last time. The caller holds a
// HookBypass.
void check_linked_functions(Engine& engine);

}  // namespace cuvmm::hook
