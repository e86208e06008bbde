// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>

namespace cuvmm {

// Starts a cuvmm thread with the program's signals blocked. Fault signals stay unblocked, since the
// driver may start threads from it, which inherit the mask. Returns 0 or an errno.
int start_thread(pthread_t* thread, void* (*run)(void*), void* with);
// The same for a thread that nobody joins.
int start_detached_thread(void* (*run)(void*), void* with);

}  // namespace cuvmm
