// SPDX-License-Identifier: Apache-2.0
// An arena over the driver under test, and streams whose work completes when a test says so.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "alloc/arena/arena.hpp"
#include "vmm_world.hpp"

namespace cuvmm::test {

// Every free takes the next tick of its stream. The device completes what the test says, and the
// arena learns of it only when it looks or waits.
class FakeOrder final : public StreamOrder {
 public:
  FreeTicket freed_on(StreamId stream);
  // Completes everything freed on the stream so far.
  void finish(StreamId stream);
  void finish_all();
  // Orders later work of `asker` after everything freed on `stream` so far.
  void order(StreamId stream, StreamId asker);
  // Makes waits find the work complete, or else time out.
  void let_waits_succeed(bool succeed = true) { waits_succeed_ = succeed; }

  // Leaves freed memory to its stream alone, like a pool without opportunistic reuse.
  void keep_to_streams() { keeps_to_streams_ = true; }

  // Makes can_follow() answer yes and no in turn, as when captures begin and end meanwhile.
  void alternate_can_follow() { can_follow_alternates_ = true; }

  // The state on the device, whether the arena knows it or not.
  bool is_over(const FreeTicket& freed) const;
  int looks() const { return looks_; }
  int waits() const { return waits_; }

  bool is_before(const FreeTicket& freed, StreamId asker) const override;
  bool is_done(const FreeTicket& freed) const override;
  bool is_free_for_anyone(const FreeTicket& freed) const override {
    return keeps_to_streams_ ? freed.is_for_anyone() : is_done(freed);
  }
  bool can_follow(const FreeTicket&, StreamId) const override {
    return can_follow_alternates_ && follow_questions_++ % 2 == 0;
  }
  void look(StreamId stream) override;
  bool wait(const FreeTicket& freed, std::uint64_t until) override;

 private:
  struct Ticks {
    std::uint64_t last = 0;
    std::uint64_t over = 0;   // on the device
    std::uint64_t known = 0;  // as of the last look
  };
  const Ticks& of(StreamId stream) const;

  mutable std::mutex mutex_;  // guards the members below
  std::map<StreamId, Ticks> streams_;
  std::map<std::pair<StreamId, StreamId>, std::uint64_t> ordered_;
  std::atomic<bool> waits_succeed_{true};
  std::atomic<bool> keeps_to_streams_{false};
  std::atomic<bool> can_follow_alternates_{false};
  mutable std::atomic<int> follow_questions_{0};
  std::atomic<int> looks_{0};
  std::atomic<int> waits_{0};
};

// Moves the live memory of arenas. No work is ever in flight in these tests.
class ArenaCompactor final : public Compactor {
 public:
  explicit ArenaCompactor(const Driver& driver) : driver_(driver) {}
  void serve(Arena& arena) { arenas_.push_back(&arena); }
  bool make_room(Size missing, StreamId asker, std::uint64_t until) override;
  bool is_resting() const override { return rests_; }
  void rest() { rests_ = true; }
  // Whether live memory may move at all.
  void allow(bool may) { may_ = may; }
  int calls() const { return calls_; }
  Result<Size> compact(Size wanted);

 private:
  const Driver& driver_;
  std::vector<Arena*> arenas_;
  bool may_ = true;
  bool rests_ = false;
  int calls_ = 0;
  std::shared_ptr<CopyStream> stream_;
};

class ArenaWorld {
 public:
  struct Given {
    Size limit_granules = 0;  // 0: none
    Size reserve_granules = 256;
    Grow grow = Grow::Loose;
    Size largest_chunk = usual_granule;
    // What a chunk may take of it, even from so little memory; 0: what ChunkPolicy lets it take.
    Size share_of_room = 0;
    Duration wait{1'000'000};
    Size spill_granules = 0;  // that may reside on the host
    bool compacts = false;    // live memory moves under pressure
    bool spreads = false;     // blocks of equal size, see arena::Spread
  };
  ArenaWorld(const Driver& driver, const Given& given);

  const Driver& driver;
  const Location here = Location::device(0);
  const Size granule;
  const std::shared_ptr<LocalBudget> budget;
  const std::shared_ptr<LocalBudget> spill_budget;
  ChunkStore store;
  FakeOrder order;
  ArenaCompactor compactor;
  const Given chosen;

  std::unique_ptr<Arena> make_arena();
  Arena& arena() { return *arena_; }

  Size granules(Size count) const { return count * granule; }
  // Allocates blocks or fails the test. Each has its first and last bytes filled with its own
  // pattern.
  Block& given_block(Size size, StreamId stream = 1);
  std::vector<Block*> given_blocks(std::size_t count, Size size, StreamId stream = 1);
  void expect_intact(const Block& block);
  // Frees the block on the stream, behind pending work.
  void free(Block& block, StreamId stream = 1) { arena().free(block, order.freed_on(stream)); }
  // Frees the block after all work on it is complete.
  void free_for_anyone(Block& block) { arena().free(block, {}); }

  Size offset_of(const Block& block) const { return block.address() - base_; }
  // Checks that tiles, chunks and driver agree.
  void check();

 private:
  std::unique_ptr<Arena> arena_;
  CUdeviceptr base_ = 0;
};

// Of quarters of granules in the order of their addresses: the inner two of every second granule
// and the outer two of the others. If these are freed, no granule is free, but neighbours can share
// a chunk.
inline bool is_freed_quarter(std::size_t index) {
  const bool is_inner = index % 4 == 1 || index % 4 == 2;
  const bool is_even = index / 4 % 2 == 0;
  return is_inner == is_even;
}

class ArenaTest : public VmmTest {
 protected:
  ArenaWorld& given(const ArenaWorld::Given& given = {}) {
    world_ = std::make_unique<ArenaWorld>(driver(), given);
    return *world_;
  }
  ArenaWorld& world() { return *world_; }
  void TearDown() override {
    if (world_ != nullptr) world_->check();
    world_.reset();
    VmmTest::TearDown();
  }

 private:
  std::unique_ptr<ArenaWorld> world_;
};

}  // namespace cuvmm::test
