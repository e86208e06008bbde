// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "driver/driver.hpp"

namespace cuvmm {

// nullptr if the thread has none.
inline CUcontext current_context(const Driver& driver) {
  CUcontext context = nullptr;
  return driver.cuCtxGetCurrent(&context) == CUDA_SUCCESS ? context : nullptr;
}

// -1 if the thread has no context.
inline int current_device(const Driver& driver) {
  CUdevice ordinal = -1;
  return driver.cuCtxGetDevice_v2000(&ordinal) == CUDA_SUCCESS ? ordinal : -1;
}

// Of the current device; nullopt if the driver does not say.
inline std::optional<Size> free_memory(const Driver& driver) {
  std::size_t free = 0;
  std::size_t all = 0;
  if (driver.cuMemGetInfo(&free, &all) != CUDA_SUCCESS) return {};
  return free;
}

// Tells contexts apart even if a new one has the handle of one that has ended. 0 if there is none,
// or if the driver is older than CUDA 12.
inline unsigned long long context_id(const Driver& driver, CUcontext context) {
  unsigned long long id = 0;
  if (context == nullptr || driver.cuCtxGetId(context, &id) != CUDA_SUCCESS) return 0;
  return id;
}

// A context that the program may end, and begin again with the same handle, unnoticed.
struct KnownContext {
  CUcontext handle = nullptr;
  unsigned long long id = 0;

  static KnownContext of(const Driver& driver, CUcontext context) {
    return {context, context_id(driver, context)};
  }
};

// Makes a context current until the end of the scope.
class InContext {
 public:
  InContext(const Driver& driver, CUcontext context) : driver_(driver) {
    if (current_context(driver) == context) {
      answer_ = context != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
      return;
    }
    answer_ = driver.cuCtxPushCurrent(context);
    pushed_ = ok();
  }
  InContext(const Driver& driver, const KnownContext& context) : InContext(driver, context.handle) {
    if (!ok() || context.id == 0) return;
    unsigned long long id = 0;
    const CUresult found = driver.cuCtxGetId(context.handle, &id);
    const bool has_ended =
        found == CUDA_ERROR_CONTEXT_IS_DESTROYED || found == CUDA_ERROR_INVALID_CONTEXT;
    if (has_ended || (found == CUDA_SUCCESS && id != context.id)) {
      answer_ = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
  }
  ~InContext() {
    CUcontext ours = nullptr;
    if (pushed_) driver_.cuCtxPopCurrent(&ours);
  }
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;

  // False if the context no longer exists.
  bool ok() const { return answer_ == CUDA_SUCCESS; }
  CUresult answer() const { return answer_; }

 private:
  const Driver& driver_;
  CUresult answer_ = CUDA_SUCCESS;
  bool pushed_ = false;
};

// -1 if the context no longer exists.
inline int device_of(const Driver& driver, CUcontext context) {
  const InContext in_context{driver, context};
  CUdevice device = -1;
  if (in_context.ok()) driver.cuCtxGetDevice_v2000(&device);
  return device;
}

}  // namespace cuvmm
