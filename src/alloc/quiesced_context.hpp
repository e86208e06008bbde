// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "alloc/live_move_policy.hpp"
#include "alloc/windows/quiescence.hpp"
#include "driver/current_context.hpp"

namespace cuvmm {

// A period in which live memory of one context may move: no thread submits work, and all work that
// could touch the memory is done.
class QuiescedContext final : public Quiescence {
 public:
  // Both must outlive this object.
  QuiescedContext(const MemoryDependencies& dependencies, const LiveMovePolicy& policy,
                  CUcontext context)
      : dependencies_(dependencies), policy_(policy), context_(context) {}
  ~QuiescedContext() override = default;
  QuiescedContext(const QuiescedContext&) = delete;
  QuiescedContext& operator=(const QuiescedContext&) = delete;

  // Returns false if the context is not quiescent by `until`, or if waiting is not allowed: a
  // kernel may be waiting for this very thread.
  bool is_ruled_out() const override { return policy_.is_ruled_out(); }
  bool begin(std::uint64_t until) override;
  void end() override;
  CopyBy copy_by() override;

  // The copy stream went with the context.
  void context_ended() {
    if (stream_ != nullptr) stream_->context_ended();
  }

 private:
  const MemoryDependencies& dependencies_;
  const LiveMovePolicy& policy_;
  const CUcontext context_;
  std::shared_ptr<CopyStream> stream_;  // created for the first copy
  // Of the thread that closed the gate; only one thread at a time can.
  std::optional<RelaxedCapture> relaxed_;
  std::optional<InContext> in_context_;
};

}  // namespace cuvmm
