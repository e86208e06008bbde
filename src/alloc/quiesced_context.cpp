// SPDX-License-Identifier: Apache-2.0
#include "alloc/quiesced_context.hpp"

#include <utility>

#include "alloc/peer_dma_detection.hpp"

namespace cuvmm {

bool Memory::may_move_live_memory() const {
  if (settings_.compact == Compact::Off || !dependencies_.sees_everything()) return false;
  return !may_be_registered_by_address();
}

bool Memory::may_be_registered_by_address() const {
  return settings_.compact != Compact::On && holds_device_by_address();
}

bool Memory::is_known_to_register_by_address() const {
  return settings_.compact != Compact::On && still_holds_device_by_address();
}

bool Memory::QuiescedContext::begin(std::uint64_t until) {
  if (!memory_.may_move_live_memory()) return false;
  Gate& gate = memory_.dependencies_.gate;
  if (!gate.close(until)) return false;
  if (memory_.wait_for_everything(until)) {
    relaxed_.emplace(memory_.dependencies_.driver);
    in_context_.emplace(memory_.dependencies_.driver, context_);
    if (in_context_->ok()) return true;
    in_context_.reset();
    relaxed_.reset();
  }
  gate.open();
  return false;
}

CopyBy Memory::QuiescedContext::copy_by() {
  const Driver& driver = memory_.dependencies_.driver;
  if (stream_ == nullptr &&
      driver.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
    stream_ = nullptr;  // use the legacy stream instead
  }
  CUdevice device = 0;
  driver.cuCtxGetDevice_v2000(&device);
  return {.stream = stream_, .device = device};
}

void Memory::QuiescedContext::end_stream() {
  const CUstream stream = std::exchange(stream_, nullptr);
  if (stream == nullptr) return;
  const InContext in_context{memory_.dependencies_.driver, context_};
  if (in_context.ok()) memory_.dependencies_.driver.cuStreamDestroy(stream);
}

void Memory::QuiescedContext::end() {
  in_context_.reset();
  relaxed_.reset();
  memory_.dependencies_.gate.open();
}

}  // namespace cuvmm
