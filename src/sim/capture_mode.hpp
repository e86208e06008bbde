// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/cuda.hpp"

namespace cuvmm::sim {

// The calling thread's own mode (cuThreadExchangeStreamCaptureMode): the one before is returned.
CUstreamCaptureMode exchange_thread_mode(CUstreamCaptureMode mode);

}  // namespace cuvmm::sim
