// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/log.hpp"
#include "engine/control.hpp"
#include "hook/record.hpp"

namespace cuvmm::hook {

// For an announced call that needs memory on the device itself. Brings in the program's spilled
// chunks that `spilled(const ProgramChunks&)` returns, listed as by ProgramChunks::far(). After
// CUDA_SUCCESS, none of them is spilled again until the call returns.
template <Call call, class Spilled>
CUresult bring_in(const Forward<call>& forward, const Spilled& spilled) {
  Serving* const serving = forward.engine().serving();
  if (serving == nullptr) return CUDA_SUCCESS;
  const ProgramChunks& chunks = serving->program_chunks;
  const auto done = forward.engine().control()->bring_in([&] { return spilled(chunks); });
  if (done.ok()) return CUDA_SUCCESS;
  CUVMM_LOG(Warning, "cannot bring spilled memory in for %s: %s", info(call).name.data(),
            done.error().text().c_str());
  return CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace cuvmm::hook
