// SPDX-License-Identifier: Apache-2.0
// Calls driver functions as CALL(cuInit)(0). Each function is looked up once, at run time, so that
// no driver is needed to build, and just as frameworks do it. A file that includes this must define
// missing_driver(const char* symbol), which reports the symbol and ends the program.
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

// The symbols behind the names in cuda.h.
#define DRIVER_SYMBOL_TEXT(name) #name
#define DRIVER_SYMBOL(name) DRIVER_SYMBOL_TEXT(name)
#define CALL(name)                                                               \
  ([]() -> decltype(name)* {                                                     \
    static decltype(name)* const found =                                         \
        driver_calls::find<decltype(name)>(DRIVER_SYMBOL(name), missing_driver); \
    return found;                                                                \
  }())
