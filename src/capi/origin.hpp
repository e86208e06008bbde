// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include "capi/engine_of_process.hpp"
#include "capi/table.hpp"

namespace cuvmm::capi {

// The process that made an object. A forked child has only a copy: its driver knows nothing of the
// memory, and a lock may have been held at the fork.
class ProcessOfOrigin {
 public:
  bool is_this_process() const { return process_ == ::getpid(); }

 private:
  const pid_t process_ = ::getpid();
};

// In a program without the preload library, the program's own allocations come from the driver and
// could not use what such objects have freed. So it goes back there.
inline void return_free_memory() {
  if (kind_of_this_engine != CUVMM_ENGINE_OWN) return;
  if (Engine* const running = Engine::running()) running->stores().trim();
}

// Destroys an object of the C API. In a forked child, destructors of static objects may ask for it:
// there it does nothing.
template <class Object>
void destroy(Object* object) {
  if (object == nullptr || !object->origin.is_this_process()) return;
  const HookBypass bypass;
  delete object;
}

// The same for an object that holds memory.
template <class Object>
void destroy_with_memory(Object* object) {
  if (object == nullptr || !object->origin.is_this_process()) return;
  destroy(object);
  const HookBypass bypass;
  return_free_memory();
}

}  // namespace cuvmm::capi
