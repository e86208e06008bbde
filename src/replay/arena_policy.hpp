// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unordered_map>

#include "alloc/arena/arena.hpp"
#include "alloc/device_memory.hpp"
#include "replay/policy.hpp"
#include "replay/simulation.hpp"

namespace cuvmm::replay {

// The trace tells when a block's memory may be used again, so that all of its frees are done.
class TraceOrder final : public StreamOrder {
 public:
  bool is_before(const FreeTicket&, StreamId) const override { return true; }
  bool is_done(const FreeTicket&) const override { return true; }
  void look(StreamId) override {}
  bool wait(const FreeTicket&, std::uint64_t) override { return true; }
};

// cuvmm's own allocator: the real code, on the simulated driver.
class ArenaPolicy final : public Policy {
 public:
  struct Settings {
    Size limit = unlimited;
    Size chunk = 0;  // of all chunks; 0: the arena chooses
    Grow grow = Grow::Loose;
  };
  static Result<std::unique_ptr<Policy>> create(const Simulation& simulation,
                                                const Settings& settings);

  Result<void> allocate(const ReplayEvent& event) override;
  Result<void> free(const ReplayEvent& event) override;
  PolicyCounters counters() const override;

 private:
  explicit ArenaPolicy(const Simulation& simulation) : simulation_(simulation) {}

  // Small blocks apart, as in a pool of the program's.
  static constexpr Size smallest_large = 1 * MiB;
  Arena& arena_of(Size size) const { return size < smallest_large ? *small_ : *large_; }

  Simulation simulation_;
  TraceOrder order_;
  std::unique_ptr<DeviceMemory> device_;
  std::unique_ptr<Arena> large_;
  std::unique_ptr<Arena> small_;
  std::unordered_map<BlockId, Block*> used_;
  std::uint64_t last_tick_ = 0;
  std::uint64_t creates_before_ = 0;
};

}  // namespace cuvmm::replay
