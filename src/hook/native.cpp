// SPDX-License-Identifier: Apache-2.0
#include "hook/native.hpp"

#include "hook/next_definition.hpp"

namespace cuvmm::hook {

// Need not be fast: a program that was given the real cuGetProcAddress does not come back here.
void* native_function(const CallInfo& row, Flavour flavour) {
  const HookBypass bypass;
  const bool per_thread = flavour == Flavour::PerThread && row.per_thread_symbol != nullptr;
  const char* const symbol = per_thread ? row.per_thread_symbol : row.symbol;
  if (void* const next = next_definition(symbol)) return next;
  const DriverSource& source = driver_source();
  void* const library = source.doors.open(source.path.load());
  return library != nullptr ? source.doors.symbol(library, symbol) : nullptr;
}

}  // namespace cuvmm::hook
