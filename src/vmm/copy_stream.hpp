// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>

#include "driver/driver.hpp"
#include "vmm/scratch_mapping.hpp"

namespace cuvmm {

// A stream of the current context for copying memory contents while the program is quiesced. Lives
// until its last copy has finished.
class CopyStream : public std::enable_shared_from_this<CopyStream> {
 public:
  explicit CopyStream(const Driver& driver);
  ~CopyStream();
  CopyStream(const CopyStream&) = delete;
  CopyStream& operator=(const CopyStream&) = delete;

  CUstream handle() const { return handle_; }
  // After a failed copy that may still be writing to `mapping`: keeps the mapping until the stream
  // is idle.
  void keep_until_idle(std::shared_ptr<ScratchMapping> mapping);
  // The driver has destroyed the stream with its context.
  void context_ended() { context_.store(nullptr); }

 private:
  CUresult wait() const;

  const Driver& driver_;
  std::atomic<CUcontext> context_;  // nullptr: has ended
  CUstream handle_ = nullptr;
};

// The stream that performs copies, and its device. The stream's context must be current.
struct CopyBy {
  std::shared_ptr<CopyStream> stream;
  int device = 0;  // of that context
};

}  // namespace cuvmm
