// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>

#include "driver/driver.hpp"
#include "vmm/scratch_mapping.hpp"

namespace cuvmm {

// A stream of the current context for copies of contents while the program stands still. Lasts
// until none of its copies runs any more.
class CopyStream : public std::enable_shared_from_this<CopyStream> {
 public:
  explicit CopyStream(const Driver& driver);
  ~CopyStream();
  CopyStream(const CopyStream&) = delete;
  CopyStream& operator=(const CopyStream&) = delete;

  CUstream handle() const { return handle_; }
  // For a copy that failed and may still be writing there.
  void keep_until_idle(std::shared_ptr<ScratchMapping> mapping);
  // The stream ended with its context.
  void context_ended() { context_.store(nullptr); }

 private:
  CUresult wait() const;

  const Driver& driver_;
  std::atomic<CUcontext> context_;  // nullptr: has ended
  CUstream handle_ = nullptr;
};

// What copies contents. The context of the stream must be current.
struct CopyBy {
  std::shared_ptr<CopyStream> stream;
  int device = 0;  // of that context
};

}  // namespace cuvmm
