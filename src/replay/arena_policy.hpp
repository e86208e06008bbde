// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unordered_map>

#include "alloc/arena/compactor.hpp"
#include "alloc/context_memory.hpp"
#include "alloc/pool_memory.hpp"
#include "replay/policy.hpp"
#include "replay/simulation.hpp"

namespace cuvmm::replay {

// The trace records when a block's memory may be reused, so every free counts as done.
class TraceOrder final : public StreamOrder {
 public:
  bool is_before(const FreeTicket&, StreamId) const override { return true; }
  bool is_done(const FreeTicket&) const override { return true; }
  void look(StreamId) override {}
  bool wait(const FreeTicket&, std::uint64_t) override { return true; }
};

// A replay has no work that could touch memory while it moves.
class TraceQuiescence final : public Quiescence {
 public:
  explicit TraceQuiescence(const Simulation& simulation) : simulation_(simulation) {}

  bool begin(std::uint64_t until) override;
  void end() override {}
  CopyBy copy_by() override { return {.stream = stream_, .device = 0}; }

 private:
  const Simulation simulation_;
  std::shared_ptr<CopyStream> stream_;  // created on first use
};

// Moves the pool's live memory for requests that would otherwise be refused.
class TraceCompactor final : public Compactor {
 public:
  explicit TraceCompactor(Quiescence& quiescence) : quiescence_(quiescence) {}
  void serve(PoolMemory& pool) { pool_ = &pool; }
  bool make_room(Size missing, StreamId asker, std::uint64_t until) override;
  bool is_resting() const override { return false; }

 private:
  Quiescence& quiescence_;
  PoolMemory* pool_ = nullptr;
};

// cuvmm's own allocator: the real code, on the simulated driver. Stream-ordered memory comes from
// one pool, blocking memory from one context.
class ArenaPolicy final : public Policy {
 public:
  struct Settings {
    Size limit = unlimited;
    Size chunk = 0;  // size of all chunks of stream-ordered memory; 0: arenas choose
    Grow grow = Grow::Loose;
    Compact compact = Compact::Auto;
  };
  static Result<std::unique_ptr<Policy>> create(const Simulation& simulation,
                                                const Settings& settings);

  Result<void> allocate(const ReplayEvent& event) override;
  Result<void> release(const ReplayEvent& event) override;
  PolicyCounters counters() const override;

 private:
  explicit ArenaPolicy(const Simulation& simulation)
      : simulation_(simulation), quiescence_(simulation), compactor_(quiescence_) {}
  Result<void> make_parts(const Settings& settings);

  const Simulation simulation_;
  TraceOrder order_;
  TraceQuiescence quiescence_;
  TraceCompactor compactor_;
  std::unique_ptr<DeviceMemory> device_;
  std::unique_ptr<PoolMemory> pool_;
  std::unique_ptr<ContextMemory> context_;
  std::unordered_map<BlockId, Allocation*> used_;
  std::uint64_t last_tick_ = 0;
  std::uint64_t creates_before_ = 0;
};

}  // namespace cuvmm::replay
