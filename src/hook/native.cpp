// SPDX-License-Identifier: Apache-2.0
#include "hook/native.hpp"

namespace cuvmm::hook {

// Need not be fast: a program that was given the real cuGetProcAddress does not come back here.
void* native_function(const CallInfo& row, Flavour flavour) {
  const HookBypass bypass;
  const DriverSource& source = driver_source();
  void* library = source.doors.open(source.path.load());
  if (library == nullptr) return nullptr;
  const bool per_thread = flavour == Flavour::PerThread && row.per_thread_symbol != nullptr;
  return source.doors.symbol(library, per_thread ? row.per_thread_symbol : row.symbol);
}

}  // namespace cuvmm::hook
