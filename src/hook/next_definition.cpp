// SPDX-License-Identifier: Apache-2.0
#include "hook/next_definition.hpp"

#include <dlfcn.h>

#include "engine/engine.hpp"

// The linker defines these two: cuvmm's library, in memory.
extern "C" {
[[gnu::visibility("hidden")]] extern const char __ehdr_start;
[[gnu::visibility("hidden")]] extern const char _end;
}

namespace cuvmm::hook {
namespace {

// Not so if the stub has opened the library: then RTLD_NEXT would not find cuvmm in any scope to
// begin behind.
bool is_in_the_scope_of_all() {
  return is_export(driver_source().doors.symbol(RTLD_DEFAULT, "cuvmm_engine_v1"));
}

}  // namespace

bool is_export(const void* address) {
  return static_cast<const char*>(address) >= &__ehdr_start &&
         static_cast<const char*>(address) < &_end;
}

bool another_comes_first(const char* symbol) {
  return is_in_the_scope_of_all() && !is_export(driver_source().doors.symbol(RTLD_DEFAULT, symbol));
}

void* next_definition(const char* symbol) {
  if (!is_in_the_scope_of_all()) return nullptr;
  return driver_source().doors.symbol(RTLD_NEXT, symbol);
}

}  // namespace cuvmm::hook
