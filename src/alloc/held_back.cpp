// SPDX-License-Identifier: Apache-2.0
#include "alloc/held_back.hpp"

#include <utility>

#include "alloc/by_address.hpp"

namespace cuvmm {

bool Memory::may_move_live_memory() const {
  if (settings_.compact == Compact::Off || !around_.sees_everything()) return false;
  return !may_be_registered_by_address();
}

bool Memory::may_be_registered_by_address() const {
  return settings_.compact != Compact::On && holds_device_by_address();
}

bool Memory::HeldBack::begin(std::uint64_t until) {
  if (!memory_.may_move_live_memory()) return false;
  Gate& gate = memory_.around_.gate;
  if (!gate.close(until)) return false;
  if (memory_.wait_for_everything(until)) {
    relaxed_.emplace(memory_.around_.driver);
    in_context_.emplace(memory_.around_.driver, context_);
    if (in_context_->ok()) return true;
    in_context_.reset();
    relaxed_.reset();
  }
  gate.open();
  return false;
}

CopyBy Memory::HeldBack::copy_by() {
  const Driver& driver = memory_.around_.driver;
  if (stream_ == nullptr &&
      driver.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
    stream_ = nullptr;  // the legacy stream does as well
  }
  CUdevice device = 0;
  driver.cuCtxGetDevice_v2000(&device);
  return {.stream = stream_, .device = device};
}

void Memory::HeldBack::end_stream() {
  const CUstream stream = std::exchange(stream_, nullptr);
  if (stream == nullptr) return;
  const InContext in_context{memory_.around_.driver, context_};
  if (in_context.ok()) memory_.around_.driver.cuStreamDestroy(stream);
}

void Memory::HeldBack::end() {
  in_context_.reset();
  relaxed_.reset();
  memory_.around_.gate.open();
}

}  // namespace cuvmm
