// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stream/stream_clock.hpp"

namespace cuvmm::test {

// A program whose own calls bypass the clock: every operation takes its place in its stream as if
// the other side of the legacy barrier had been given work.
inline StreamClock::Program unseen_program(const Captures& captures, Gate& gate) {
  static LegacyBarrier legacy;
  return {captures, gate, legacy, [] { return false; }};
}

}  // namespace cuvmm::test
