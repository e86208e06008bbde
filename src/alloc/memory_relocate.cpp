// SPDX-License-Identifier: Apache-2.0
// Memory: all of a device's, from its chunks to others.
#include <algorithm>
#include <mutex>
#include <shared_mutex>

#include "alloc/held_back.hpp"
#include "alloc/memory.hpp"
#include "alloc/relocation.hpp"
#include "vmm/give_back.hpp"

namespace cuvmm {
namespace {

// A stream for the copies of one context, which is current while it lives.
class CopyStream {
 public:
  CopyStream(const Driver& driver, CUcontext context, int device)
      : driver_(driver), in_context_(driver, context), device_(device) {
    if (!in_context_.ok()) return;
    const CUresult answer = driver.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING);
    ok_ = answer == CUDA_SUCCESS;
    if (!ok_) stream_ = nullptr;
  }
  ~CopyStream() {
    if (!ok_ || is_kept_) return;
    if (driver_.cuStreamDestroy(stream_) != CUDA_SUCCESS) driver_.cuStreamDestroy(stream_);
  }
  CopyStream(const CopyStream&) = delete;
  CopyStream& operator=(const CopyStream&) = delete;

  bool ok() const { return ok_; }
  // Copies may still run on it.
  void keep() { is_kept_ = true; }
  CopyBy copy_by() const { return {.stream = stream_, .device = device_}; }

 private:
  const Driver& driver_;
  const InContext in_context_;
  const int device_;
  CUstream stream_ = nullptr;
  bool ok_ = false;
  bool is_kept_ = false;
};

}  // namespace

// A context that is as good as any for copies on the device; nullptr where none is known.
CUcontext Memory::some_context_on(int ordinal) const {
  {
    const Reading reading{contexts_lock_};
    for (const auto& [handle, served] : contexts_) {
      if (served->memory != nullptr && served->memory->device().ordinal() == ordinal) {
        return handle;
      }
    }
  }
  for (const CUcontext context : around_.clock.table().contexts()) {
    if (device_of(around_.driver, context) == ordinal) return context;
  }
  return nullptr;
}

bool Memory::wait_for_everything(std::uint64_t until) {
  std::vector<CUcontext> all = around_.clock.table().contexts();
  {
    const Reading reading{contexts_lock_};
    for (const auto& [handle, served] : contexts_) all.push_back(handle);
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return std::all_of(all.begin(), all.end(), [&](CUcontext context) {
    return is_dead(context) || around_.clock.wait_for_all(context, until);
  });
}

void Memory::relocate(int ordinal, Relocation& relocation) {
  const RelaxedCapture relaxed{around_.driver};
  const bool moves = relocation.what == Relocation::Do::Move;
  const CUcontext context = some_context_on(ordinal);
  std::optional<CopyStream> stream;
  if (moves) {
    stream.emplace(around_.driver, context, ordinal);
    if (context == nullptr || !stream->ok()) {
      relocation.failure = Error{.kind = ErrorKind::DriverFailed,
                                 .doing = "move memory",
                                 .subject = "no stream for the copies"};
      return;
    }
    relocation.copy = stream->copy_by();
  }
  {
    const Reading reading{contexts_lock_};
    for (const auto& [handle, served] : contexts_) {
      if (served->memory == nullptr || served->memory->device().ordinal() != ordinal) continue;
      served->memory->relocate(relocation);
    }
  }
  const Reading reading{pools_lock_};
  for (const auto& [handle, pool] : pools_) {
    if (pool->device().ordinal() == ordinal) pool->relocate(relocation);
  }
  for (const auto& pool : ended_pools_) {
    if (pool->device().ordinal() == ordinal) pool->relocate(relocation);
  }
  // What rebind() still owes waits for the stream.
  const bool owes_copies = relocation.failure && settle() != 0;
  if (stream && (relocation.copies_may_run || owes_copies)) stream->keep();
}

std::vector<DeviceMemory*> Memory::served_devices() const {
  std::vector<DeviceMemory*> served;
  for (const Device& device : devices_) {
    if (device.serving.load(std::memory_order_acquire) == Serving::Ours) {
      served.push_back(device.memory.get());
    }
  }
  return served;
}

}  // namespace cuvmm
