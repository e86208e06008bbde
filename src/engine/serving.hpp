// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "alloc/memory.hpp"
#include "alloc/pointer_answers.hpp"
#include "base/options.hpp"
#include "engine/inside.hpp"
#include "engine/resize_watch.hpp"
#include "share/legacy_ipc.hpp"

namespace cuvmm {

inline MemorySettings memory_settings(const Options& options) {
  return {.limit = options.limit,
          .cache = options.cache,
          .grow = options.grow,
          .free = options.free,
          .compact = options.compact,
          .wait = options.wait,
          .spill = options.spill,
          .spill_peers = options.spill_peers};
}

// All that serves the program's memory, in VMM_MODE=VMM.
struct Serving {
  // What the engine knows of the program.
  struct Program {
    Gate& gate;
    Threshold& calls;
    WorkNote& work_note;
    LegacyBarrier& legacy_barrier;
    PerThreadUse& per_thread_use;
    Watch& watch;
    Captures& captures;
    std::function<bool()> sees_everything;
  };
  Serving(const Driver& driver, const Options& options, const Program& program)
      : clock(driver,
              {program.captures, program.gate, program.legacy_barrier, program.sees_everything}),
        memory({driver, clock, program.captures, program.gate, program.work_note,
                program.sees_everything},
               memory_settings(options)),
        ipc(driver, memory,
            [](const std::function<void()>& work) {
              const Inside inside;
              work();
            }),
        captures(program.captures) {
    if (options.resize == Resize::Off) return;
    resizing = std::make_unique<ResizeWatch>(
        program.watch, program.calls,
        Resizer::Surroundings{driver, memory, clock, captures, program.gate, program.work_note,
                              program.per_thread_use},
        options.resize);
  }

  // nullptr where every copy is made.
  Resizer* resizer() { return resizing != nullptr ? &resizing->resizer() : nullptr; }

  StreamClock clock;
  Memory memory;
  LegacyIpc ipc;  // ends before what it lends
  std::unique_ptr<ResizeWatch> resizing;
  Captures& captures;
};

}  // namespace cuvmm
