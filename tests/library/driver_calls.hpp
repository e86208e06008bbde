// SPDX-License-Identifier: Apache-2.0
// The driver's own functions, looked up as any program does, so that a preloaded library sees the
// calls: CALL(cuMemFree)(address).
#pragma once

#include <cuda.h>
#include <dlfcn.h>

namespace cuvmm::test {

template <class Function>
Function* find(const char* symbol) {
  static void* library = ::dlopen("libcuda.so.1", RTLD_NOW);
  return library != nullptr ? reinterpret_cast<Function*>(::dlsym(library, symbol)) : nullptr;
}
#define SYMBOL_TEXT(name) #name
#define SYMBOL(name) SYMBOL_TEXT(name)
#define CALL(name) ::cuvmm::test::find<decltype(name)>(SYMBOL(name))

}  // namespace cuvmm::test
