// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hook/door.hpp"

namespace cuvmm::hook {

// A row's function in the driver, found without an engine: for programs that run although we could
// not start. nullptr where there is no driver, or none that has it.
void* native_function(const CallInfo& row, Flavour flavour);

template <Call call, class... Arguments>
CUresult call_natively(Flavour flavour, Arguments... arguments) {
  const auto function =
      reinterpret_cast<typename Row<call>::Function>(native_function(info(call), flavour));
  return function != nullptr ? function(arguments...) : CUDA_ERROR_NOT_INITIALIZED;
}

}  // namespace cuvmm::hook
