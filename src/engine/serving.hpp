// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "alloc/memory.hpp"
#include "alloc/out_of_memory.hpp"
#include "alloc/pointer_answers.hpp"
#include "alloc/program_creation.hpp"
#include "base/options.hpp"
#include "engine/hook_bypass.hpp"
#include "engine/resize_watch.hpp"
#include "share/legacy_ipc.hpp"

namespace cuvmm {

inline MemorySettings memory_settings(const Options& options, Lessor* lessor = nullptr) {
  return {.limit = options.limit,
          .device_limits = options.hami.device_limits,
          .cache = options.cache,
          .grow = options.grow,
          .free = options.free,
          .compact = options.compact,
          .wait = options.wait,
          .node_wait = options.node_wait,
          .spill = options.spill,
          .spill_peers = options.spill_peers,
          .lessor = lessor};
}

// Everything that serves the program's memory with VMM_MODE=VMM.
struct Serving {
  // The parts of the engine that track the program's calls.
  struct Program {
    Gate& gate;
    CallBarrier& calls;
    SubmissionEpoch& submission_epoch;
    LegacyBarrier& legacy_barrier;
    PerThreadUse& per_thread_use;
    Watch& watch;
    Captures& captures;
    std::function<bool()> sees_everything;
  };
  Serving(const Driver& driver, const Options& options, Lessor* lessor, const Program& program)
      : clock(driver,
              {program.captures, program.gate, program.legacy_barrier, program.sees_everything}),
        memory({driver, clock, program.captures, program.gate, program.submission_epoch,
                program.sees_everything},
               memory_settings(options, lessor)),
        program_chunks(driver),
        program_creation(driver, memory, program_chunks),
        ipc(driver, memory, program_chunks,
            [](const std::function<void()>& work) {
              const HookBypass bypass;
              work();
            }),
        captures(program.captures) {
    if (options.resize == Resize::Off) return;
    resizing = std::make_unique<ResizeWatch>(
        program.watch, program.calls,
        Resizer::Dependencies{driver, memory, clock, captures, program.gate,
                              program.submission_epoch, program.per_thread_use},
        options.resize);
  }

  // nullptr if no copy may be deferred.
  Resizer* resizer() { return resizing != nullptr ? &resizing->resizer() : nullptr; }

  StreamClock clock;
  Memory memory;
  ProgramChunks program_chunks;
  ProgramCreation program_creation;
  LegacyIpc ipc;  // destroyed before the memory that it lends
  std::unique_ptr<ResizeWatch> resizing;
  Captures& captures;
};

}  // namespace cuvmm
