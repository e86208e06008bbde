// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "driver/calls.hpp"

namespace cuvmm {

// The row of the missing function that this thread called last; set by the stand-ins for absent
// functions (load.cpp). Every check() clears it, so that a later error is not attributed to it.
extern constinit thread_local const CallInfo* last_absent_call;

}  // namespace cuvmm
