// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

#include "driver/driver.hpp"
#include "vmm/deferred_release.hpp"
#include "vmm/scratch_mapping.hpp"

namespace cuvmm {

// A stream of the current context for copies of contents while the program stands still.
struct CopyStream : std::enable_shared_from_this<CopyStream> {
  explicit CopyStream(const Driver& with) : driver(with) {
    // Falls back to the legacy stream, which does as well: nothing else is running.
    if (driver.cuStreamCreate(&handle, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) handle = nullptr;
  }
  ~CopyStream() {
    if (handle == nullptr) return;
    release_or_defer(Deferred::Handle, [driver = &driver, handle = handle] {
      return driver->cuStreamDestroy(handle);
    });
  }
  CopyStream(const CopyStream&) = delete;
  CopyStream& operator=(const CopyStream&) = delete;

  // For a copy that failed and may still be writing there.
  void keep_until_idle(std::shared_ptr<ScratchMapping> mapping) {
    defer_release(Deferred::Copy, [stream = shared_from_this(), kept = std::move(mapping)] {
      return stream->driver.cuStreamSynchronize(stream->handle);
    });
  }

  const Driver& driver;
  CUstream handle = nullptr;
};

}  // namespace cuvmm
