// SPDX-License-Identifier: Apache-2.0
// The doors over the simulated driver, as a program's lookups find them.
#pragma once

#include <dlfcn.h>

#include "hook/door_of.hpp"

namespace cuvmm::test {

// Opens the simulated driver so that the engine finds it.
inline void* open_driver() {
  static void* library = [] {
    void* opened = dlopen(CUVMM_SIM_DRIVER, RTLD_NOW | RTLD_GLOBAL);
    driver_source().path.store(CUVMM_SIM_DRIVER);
    return opened;
  }();
  return library;
}

// Answers as dlsym does under cuvmm.
inline void* look_up(const char* symbol) {
  void* library = open_driver();
  void* door = hook::door_for_symbol(library, symbol, &dlsym).address;
  return door != nullptr ? door : dlsym(library, symbol);
}

template <Call call, class... Arguments>
CUresult through_door(Arguments... arguments) {
  const auto door =
      reinterpret_cast<typename hook::Row<call>::Function>(look_up(info(call).symbol));
  return door(arguments...);
}

}  // namespace cuvmm::test
