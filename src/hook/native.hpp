// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hook/door.hpp"

namespace cuvmm::hook {

// A row's driver function, looked up without an engine: for programs that keep running although
// cuvmm could not start. nullptr if there is no driver or it lacks the function.
void* native_function(const CallInfo& row, Flavour flavour);

template <Call call, class... Arguments>
CUresult call_natively(Flavour flavour, Arguments... arguments) {
  const auto function =
      reinterpret_cast<typename Row<call>::Function>(native_function(info(call), flavour));
  return function != nullptr ? function(arguments...) : CUDA_ERROR_NOT_INITIALIZED;
}

}  // namespace cuvmm::hook
