// SPDX-License-Identifier: Apache-2.0
// An arena over the driver under test, and streams whose work is done when a test says so.
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

// Every free takes the next tick of its stream. The device finishes what it is told to, and the
// arena knows of it only once it has looked or waited.
class FakeOrder final : public StreamOrder {
 public:
  FreeTicket freed_on(StreamId stream);
  // What was freed on the stream so far is done.
  void finish(StreamId stream);
  void finish_all();
  // What comes on `asker` from now on runs after everything freed on `stream` so far.
  void order(StreamId stream, StreamId asker);
  // A wait finds the work done; else waiting is in vain.
  void let_waits_succeed(bool succeed = true) { waits_succeed_ = succeed; }

  // As it is on the device, known or not.
  bool is_over(const FreeTicket& freed) const;
  int looks() const { return looks_; }
  int waits() const { return waits_; }

  bool is_before(const FreeTicket& freed, StreamId asker) const override;
  bool is_done(const FreeTicket& freed) const override;
  void look(StreamId stream) override;
  bool wait(const FreeTicket& freed, std::uint64_t until) override;

 private:
  struct Ticks {
    std::uint64_t last = 0;
    std::uint64_t over = 0;   // on the device
    std::uint64_t known = 0;  // as far as was looked
  };
  const Ticks& of(StreamId stream) const;

  mutable std::mutex mutex_;  // guards what follows
  std::map<StreamId, Ticks> streams_;
  std::map<std::pair<StreamId, StreamId>, std::uint64_t> ordered_;
  std::atomic<bool> waits_succeed_{true};
  std::atomic<int> looks_{0};
  std::atomic<int> waits_{0};
};

class ArenaWorld {
 public:
  struct Given {
    Size limit_granules = 0;  // 0: none
    Size reserve_granules = 256;
    Grow grow = Grow::Loose;
    Size largest_chunk = usual_granule;
    Duration wait{1'000'000};
    Size spill_granules = 0;  // that may lie on the host
  };
  ArenaWorld(const Driver& driver, const Given& given);

  const Driver& driver;
  const Location here = Location::device(0);
  const Size granule;
  const std::shared_ptr<LocalBudget> budget;
  const std::shared_ptr<LocalBudget> spill_budget;
  ChunkStore store;
  FakeOrder order;
  const Given chosen;

  std::unique_ptr<Arena> make_arena();
  Arena& arena() { return *arena_; }

  Size granules(Size count) const { return count * granule; }
  // Blocks that must be had. Each has its first and last bytes filled with a pattern of its own.
  Block& given_block(Size size, StreamId stream = 1);
  std::vector<Block*> given_blocks(std::size_t count, Size size, StreamId stream = 1);
  void expect_intact(const Block& block);
  // Freed on the stream, which has work to do before.
  void free(Block& block, StreamId stream = 1) { arena().free(block, order.freed_on(stream)); }
  // Freed when all work was done.
  void free_for_anyone(Block& block) { arena().free(block, {}); }

  Size offset_of(const Block& block) const { return block.address() - base_; }
  // Tiles, chunks and driver agree.
  void check();

 private:
  std::unique_ptr<Arena> arena_;
  CUdeviceptr base_ = 0;
};

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
