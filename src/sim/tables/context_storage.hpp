// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/cuda.hpp"

namespace cuvmm::sim {

// Values that libraries above the driver store with a context, each under a key of their own. When
// the context ends, each value is passed to the function that was stored with it.
using ContextValueEnd = void (*)(CUcontext context, void* key, void* value);

void store_with_context(CUcontext context, void* key, void* value, ContextValueEnd end);
bool forget_stored(CUcontext context, void* key);
bool find_stored(CUcontext context, void* key, void** value);
// Removes everything that is stored with the context, and calls the functions.
void end_stored(CUcontext context);

}  // namespace cuvmm::sim
