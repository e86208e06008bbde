// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/cuda.hpp"

namespace cuvmm::sim {

// Sets the calling thread's own mode (cuThreadExchangeStreamCaptureMode) and returns the previous
// one.
CUstreamCaptureMode exchange_thread_mode(CUstreamCaptureMode mode);

}  // namespace cuvmm::sim
