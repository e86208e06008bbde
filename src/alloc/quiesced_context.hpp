// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "alloc/memory.hpp"
#include "driver/current_context.hpp"

namespace cuvmm {

// A period in which live memory of one context may move: no thread submits work, and all work that
// could touch the memory is done.
class Memory::QuiescedContext final : public Quiescence {
 public:
  QuiescedContext(Memory& memory, CUcontext context) : memory_(memory), context_(context) {}
  ~QuiescedContext() override { end_stream(); }
  QuiescedContext(const QuiescedContext&) = delete;
  QuiescedContext& operator=(const QuiescedContext&) = delete;

  // Returns false if the context is not quiescent by `until`, or if waiting is not allowed: a
  // kernel may be waiting for this very thread.
  bool begin(std::uint64_t until) override;
  void end() override;
  CopyBy copy_by() override;

  // Destroys the copy stream, before the context ends. If it has ended, the stream went with it,
  // and context_ended() forgets the stream.
  void end_stream();
  void context_ended() { stream_ = nullptr; }

 private:
  Memory& memory_;
  const CUcontext context_;
  CUstream stream_ = nullptr;  // for copies; created for the first one
  // Of the thread that closed the gate; only one thread at a time can.
  std::optional<RelaxedCapture> relaxed_;
  std::optional<InContext> in_context_;
};

struct Memory::ServedContext {
  ServedContext(Memory& of, CUcontext context) : quiescence(of, context) {}
  QuiescedContext quiescence;
  std::unique_ptr<ContextMemory> memory;
};

}  // namespace cuvmm
