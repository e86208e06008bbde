// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "alloc/device_reclaim.hpp"

namespace cuvmm {

// The program's work on its devices, as far as its memory has to wait for it. Thread-safe.
class ProgramWork {
 public:
  // Both references must outlive this object.
  ProgramWork(const MemoryDependencies& dependencies, FreeMode free, DeviceReclaim& reclaim)
      : dependencies_(dependencies), free_(free), reclaim_(reclaim) {}

  bool sees_everything() const { return dependencies_.sees_everything(); }
  // Also true if the driver cannot tell.
  bool is_capturing(StreamName stream) const {
    return dependencies_.captures.may_live() && is_capturing_by_driver(stream);
  }

  // Call when the driver has reported that a context is lost. Until that context ends, every new
  // request goes to the driver, so that the program gets the error wherever it would natively.
  void context_is_lost(CUcontext context) { lost_.store(context, std::memory_order_relaxed); }
  // If another context is lost too, the driver reports that at the next call in it.
  void context_ended(CUcontext context) {
    lost_.compare_exchange_strong(context, nullptr, std::memory_order_relaxed);
  }
  bool has_lost_a_context() const { return lost_.load(std::memory_order_relaxed) != nullptr; }
  // The error that the driver gives to every call in the current context, if that one is lost.
  CUresult error_of_lost_context() const;

  // Waits until all work of the context is done, or returns the driver's error.
  Result<void> wait_for(CUcontext context);
  // The same, without a wait if nothing was submitted since the last one.
  Result<void> wait_for(ContextMemory& context);
  // Ensures, before a blocking free of the context's memory, that all work that could touch it is
  // done. Returns false if that is unknown, or would take a wait that the program did not ask for.
  bool wait_before_free(ContextMemory& context);
  // Allocates and frees a probe. If the thread's capture mode makes the driver refuse the program's
  // own free and break the capture, the driver does the same here. Otherwise it waits for the work
  // of the current context, as in any free.
  CUresult free_as_the_driver_does();
  // The error with which the driver would refuse to free the device's memory beside a capture. If
  // it refuses, it also breaks the capture. Never waits.
  CUresult refusal_of_free(CUdevice device) const;

 private:
  bool is_capturing_by_driver(StreamName stream) const;
  CUresult wait_for_the_current_context();

  const MemoryDependencies& dependencies_;
  const FreeMode free_;
  DeviceReclaim& reclaim_;
  std::atomic<CUcontext> lost_{nullptr};  // the last one, if several are
};

}  // namespace cuvmm
