// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "alloc/memory.hpp"
#include "alloc/pointer_answers.hpp"
#include "base/options.hpp"
#include "engine/inside.hpp"
#include "share/legacy_ipc.hpp"

namespace cuvmm {

inline MemorySettings memory_settings(const Options& options) {
  return {.limit = options.limit,
          .cache = options.cache,
          .grow = options.grow,
          .free = options.free,
          .compact = options.compact,
          .wait = options.wait};
}

// All that serves the program's memory, in VMM_MODE=VMM.
struct Serving {
  Serving(const Driver& driver, const Options& options, Gate& gate, WorkNote& work_note,
          std::function<bool()> sees_everything)
      : clock(driver, captures),
        memory({driver, clock, captures, gate, work_note, std::move(sees_everything)},
               memory_settings(options)),
        ipc(driver, memory, captures, [](const std::function<void()>& work) {
          const Inside inside;
          work();
        }) {}

  Captures captures;
  StreamClock clock;
  Memory memory;
  LegacyIpc ipc;  // ends before what it lends
};

}  // namespace cuvmm
