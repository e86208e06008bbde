// SPDX-License-Identifier: Apache-2.0
// Calls driver functions as CALL(cuInit)(0). Each function is looked up once, at run time, so that
// no driver is needed to build, and just as frameworks do it. A file that includes this must define
// missing_driver(const char* symbol), which reports the symbol and ends the program;
// end_without_driver() does that.
#pragma once

#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace driver_calls {

template <class Function, class Missing>
Function* find(const char* symbol, Missing missing) {
  static void* const library = ::dlopen("libcuda.so.1", RTLD_NOW);
  void* const found = library != nullptr ? ::dlsym(library, symbol) : nullptr;
  if (found == nullptr) missing(symbol);
  return reinterpret_cast<Function*>(found);
}

[[noreturn]] inline void end_without_driver(const char* program, const char* symbol, int status) {
  std::fprintf(stderr, "%s: no CUDA driver with %s; `cuvmm run --sim` has a simulated one\n",
               program, symbol);
  std::exit(status);
}

// An error as "CUDA_ERROR_NO_DEVICE (no CUDA-capable device is detected)".
inline std::string error_text(CUresult error) {
  const auto ignore = [](const char*) {};  // a driver without these functions
  auto* const get_name = find<decltype(cuGetErrorName)>("cuGetErrorName", ignore);
  auto* const get_text = find<decltype(cuGetErrorString)>("cuGetErrorString", ignore);
  const char* name = nullptr;
  const char* text = nullptr;
  if (get_name != nullptr) get_name(error, &name);
  if (get_text != nullptr) get_text(error, &text);
  if (name == nullptr) return "CUDA error " + std::to_string(static_cast<int>(error));
  return text == nullptr ? name : std::string{name} + " (" + text + ")";
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
