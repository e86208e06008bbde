// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>

namespace cuvmm {

// Starts a thread of ours, on which no signal of the program's is handled. Faults are not kept from
// it: the driver may start threads of its own there, which inherit what is blocked. 0, or an errno.
int start_thread(pthread_t* thread, void* (*run)(void*), void* with);

}  // namespace cuvmm
