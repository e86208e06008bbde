// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "sim/card/shared_card.hpp"
#include "sim/cuda.hpp"

namespace cuvmm::sim {

class Device;

// How processes share a card's engines: by time, as on a card without MPS. A turn ends when its
// slice of device time is used up, when its process has had no work for a moment, or when it has
// lasted too long in real time. In the last case running work continues, as if it had been
// preempted, but completes only in a later turn of its process. So a kernel that waits for another
// process's kernel waits no longer than on a card, and a stopped or killed process does not block
// the others.
struct TurnRules {
  std::uint64_t slice_ns = 2'000'000;
  std::uint64_t longest_ns = 10'000'000;  // in real time
  std::uint64_t idle_ns = 100'000;        // without work, in real time
};

// Occupies an engine for a piece of work, from before it runs until it is done. Does nothing on a
// card that is not shared, and for work that needs no engine (host functions, events).
class OnEngine {
 public:
  OnEngine(const Device& device, CUgraphNodeType work);
  ~OnEngine();
  OnEngine(const OnEngine&) = delete;
  OnEngine& operator=(const OnEngine&) = delete;

 private:
  SharedCard* card_ = nullptr;
  std::size_t device_ = 0;
  std::size_t engine_ = 0;
  std::uint64_t began_ns_ = 0;
  std::int64_t modelled_before_ns_ = 0;
};

}  // namespace cuvmm::sim
