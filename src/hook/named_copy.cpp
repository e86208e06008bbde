// SPDX-License-Identifier: Apache-2.0
#include "hook/named_copy.hpp"

#include "driver/current_context.hpp"

namespace cuvmm::hook {

NamedCopy::NamedCopy(Engine& engine, CopyTraits traits, StreamName stream)
    : engine_(engine),
      traits_(traits),
      stream_(stream),
      current_(current_context(engine.driver())),
      join_(engine) {
  add(current_);
}

void NamedCopy::add(CUcontext context) {
  if (context == nullptr) return;
  devices_ = devices_.with(device_of(engine_.driver(), context));
}

// A default stream belongs to the current context, whose device is already included.
void NamedCopy::add(CUstream stream) {
  if (stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) return;
  const StreamState* const known = engine_.serving()->clock.table().find({.handle = stream});
  if (known != nullptr) devices_ = devices_.with(known->device);
}

void NamedCopy::note_extent(const CUDA_MEMCPY2D* copy, size_t& /*before*/, size_t& /*last*/) {
  if (copy != nullptr) is_empty_ |= copy->WidthInBytes == 0 || copy->Height == 0;
}
void NamedCopy::note_extent(const CUDA_MEMCPY3D* copy, size_t& /*before*/, size_t& /*last*/) {
  if (copy == nullptr) return;
  is_empty_ |= copy->WidthInBytes == 0 || copy->Height == 0 || copy->Depth == 0;
}
void NamedCopy::note_extent(const CUDA_MEMCPY3D_PEER* copy, size_t& /*before*/, size_t& /*last*/) {
  if (copy == nullptr) return;
  is_empty_ |= copy->WidthInBytes == 0 || copy->Height == 0 || copy->Depth == 0;
}

bool NamedCopy::may_name(CUdeviceptr address) {
  Memory& memory = engine_.serving()->memory;
  const auto held = memory.find(address);
  if (!held) return true;
  if ((held->pins & pin::sync_memops) != 0) is_synchronous_ = true;
  const ContextMemory* const owner = held->context_memory();
  const bool is_others = owner != nullptr && owner->context() != current_;
  const bool is_work = traits_.is_submitted && !is_empty_;
  if (is_others && is_work && stream_.is_legacy()) join_.add(owner->context());
  if (traits_.is_set) return is_empty_ || memory.contexts().may_use(*held);
  memory.contexts().let_reach(*held, devices_);
  return true;
}

CUresult NamedCopy::begin() {
  const CUresult joined = join_.begin();
  if (joined != CUDA_SUCCESS) return joined;
  if (is_synchronous_ && traits_.is_submitted && !traits_.is_asynchronous) {
    synchronous_.emplace(engine_, stream_);
  }
  return CUDA_SUCCESS;
}

CUresult NamedCopy::finish(CUresult answer) const {
  if (synchronous_) answer = synchronous_->finish(answer);
  return join_.finish(answer);
}

}  // namespace cuvmm::hook
