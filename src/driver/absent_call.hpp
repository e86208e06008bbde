// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "driver/calls.hpp"

namespace cuvmm {

// The row whose missing function this thread called last; absent functions set it (load.cpp).
// Every check() takes it back, so that a later refusal is not put down to it.
extern constinit thread_local const CallInfo* last_absent_call;

}  // namespace cuvmm
