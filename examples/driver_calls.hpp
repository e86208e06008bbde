// SPDX-License-Identifier: Apache-2.0
// Driver functions by CALL(cuInit)(0). They are looked up when the program runs, so that no driver
// need be there when it is built; each once, as frameworks do it. Who includes this has a
// missing_driver(const char* symbol), which says so and ends the program.
#pragma once

#include <cuda.h>
#include <dlfcn.h>

namespace driver_calls {

template <class Function, class Missing>
Function* find(const char* symbol, Missing missing) {
  static void* const library = ::dlopen("libcuda.so.1", RTLD_NOW);
  void* const found = library != nullptr ? ::dlsym(library, symbol) : nullptr;
  if (found == nullptr) missing(symbol);
  return reinterpret_cast<Function*>(found);
}

}  // namespace driver_calls

// The symbols that cuda.h means by these names.
#define DRIVER_SYMBOL_TEXT(name) #name
#define DRIVER_SYMBOL(name) DRIVER_SYMBOL_TEXT(name)
#define CALL(name)                                                               \
  ([]() -> decltype(name)* {                                                     \
    static decltype(name)* const found =                                         \
        driver_calls::find<decltype(name)>(DRIVER_SYMBOL(name), missing_driver); \
    return found;                                                                \
  }())
