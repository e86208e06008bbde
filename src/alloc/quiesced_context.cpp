// SPDX-License-Identifier: Apache-2.0
#include "alloc/quiesced_context.hpp"

#include <utility>

namespace cuvmm {

bool QuiescedContext::begin(std::uint64_t until) {
  if (!policy_.may_move()) return false;
  Gate& gate = dependencies_.gate;
  if (!gate.close(until)) return false;
  if (dependencies_.clock.wait_for_everything(until)) {
    relaxed_.emplace(dependencies_.driver);
    in_context_.emplace(dependencies_.driver, context_);
    if (in_context_->ok()) return true;
    in_context_.reset();
    relaxed_.reset();
  }
  gate.open();
  return false;
}

CopyBy QuiescedContext::copy_by() {
  const Driver& driver = dependencies_.driver;
  if (stream_ == nullptr &&
      driver.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
    stream_ = nullptr;  // use the legacy stream instead
  }
  CUdevice device = 0;
  driver.cuCtxGetDevice_v2000(&device);
  return {.stream = stream_, .device = device};
}

void QuiescedContext::end_stream() {
  const CUstream stream = std::exchange(stream_, nullptr);
  if (stream == nullptr) return;
  const InContext in_context{dependencies_.driver, context_};
  if (in_context.ok()) dependencies_.driver.cuStreamDestroy(stream);
}

void QuiescedContext::end() {
  in_context_.reset();
  relaxed_.reset();
  dependencies_.gate.open();
}

}  // namespace cuvmm
