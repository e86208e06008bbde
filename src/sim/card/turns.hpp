// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "sim/card/shared_card.hpp"
#include "sim/cuda.hpp"

namespace cuvmm::sim {

class Device;

// How processes share a card's engines: by time, as on a card without MPS. A turn ends when its
// slice of device time is used up, when its process has had no work for a moment, or when it has
// lasted long in real time, whatever runs: then the work that runs goes on, as if it had been
// preempted, and is done only in a later turn of its process. So a kernel that waits for another
// process' kernel waits no longer than on a card, and neither a stopped nor a killed process stops
// the others.
struct TurnRules {
  std::uint64_t slice_ns = 2'000'000;
  std::uint64_t longest_ns = 10'000'000;  // of real time
  std::uint64_t idle_ns = 100'000;        // without work, of real time
};

// A piece of work's use of an engine, from before it runs until it is done. Does nothing on a card
// that is not shared, and for work that needs no engine (host functions, events).
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
