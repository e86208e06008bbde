// SPDX-License-Identifier: Apache-2.0
#include "alloc/quiesced_context.hpp"

namespace cuvmm {

bool QuiescedContext::begin(std::uint64_t until) {
  if (!policy_.may_move()) return false;
  Gate& gate = dependencies_.gate;
  if (!gate.close(until)) return false;
  // Memory may have been registered by address during the waits.
  if (dependencies_.clock.wait_for_everything(until) && policy_.may_move()) {
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
  if (stream_ == nullptr) stream_ = std::make_shared<CopyStream>(driver);
  CUdevice device = 0;
  driver.cuCtxGetDevice_v2000(&device);
  return {.stream = stream_, .device = device};
}

void QuiescedContext::end() {
  in_context_.reset();
  relaxed_.reset();
  dependencies_.gate.open();
}

}  // namespace cuvmm
