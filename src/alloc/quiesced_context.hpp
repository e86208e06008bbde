// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "alloc/memory.hpp"
#include "driver/current_context.hpp"

namespace cuvmm {

// The time in which live memory of one context may move: no thread hands the driver new work, and
// all work that could touch the memory is done.
class Memory::QuiescedContext final : public Quiescence {
 public:
  QuiescedContext(Memory& memory, CUcontext context) : memory_(memory), context_(context) {}
  ~QuiescedContext() override { end_stream(); }
  QuiescedContext(const QuiescedContext&) = delete;
  QuiescedContext& operator=(const QuiescedContext&) = delete;

  // False where it could not be had until then, or must not be: a kernel may be waiting for this
  // very thread.
  bool begin(std::uint64_t until) override;
  void end() override;
  CopyBy copy_by() override;

  // Before the context ends, or after: its stream goes with it.
  void end_stream();
  void context_ended() { stream_ = nullptr; }

 private:
  Memory& memory_;
  const CUcontext context_;
  CUstream stream_ = nullptr;  // for copies; made at the first, and gone with the context
  // Of the thread that closed the gate, and only one can.
  std::optional<RelaxedCapture> relaxed_;
  std::optional<InContext> in_context_;
};

struct Memory::ServedContext {
  ServedContext(Memory& of, CUcontext context) : quiescence(of, context) {}
  QuiescedContext quiescence;
  std::unique_ptr<ContextMemory> memory;
};

}  // namespace cuvmm
