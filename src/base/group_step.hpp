// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace cuvmm {

// Programs that wait for each other on their devices pause together. Each holds its calls until all
// hold theirs and all their work has ended; only then does any of them move memory. If one
// program's kernel spins on another's work, the first keeps its calls held, and the other runs on
// until that kernel has ended.
//
// What a program is told to do next:
enum class GroupStep : std::uint8_t {
  Hold,  // hold its calls
  Run,   // let its calls run until the next step
  Move,  // move its memory: all hold their calls, and their work has ended
  Over,  // nobody waits for its pause any more
};

}  // namespace cuvmm
