// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "stream/gate.hpp"
#include "stream/stream_clock.hpp"
#include "stream/submission_epoch.hpp"

namespace cuvmm {

// The parts that track the program's work. All of them must outlive the memory that uses them.
struct MemoryDependencies {
  const Driver& driver;
  StreamClock& clock;
  Captures& captures;
  Gate& gate;
  SubmissionEpoch& submission_epoch;
  // Whether we see every call that submits work.
  std::function<bool()> sees_everything;
};

}  // namespace cuvmm
