// SPDX-License-Identifier: Apache-2.0
#include "alloc_arena_world.hpp"

#include <algorithm>

namespace cuvmm::test {
namespace {

constexpr Size looked_at = 256;

ArenaSettings settings_of(ArenaWorld& world) {
  ArenaSettings settings;
  settings.granule = world.granule;
  settings.reserve = world.granules(world.chosen.reserve_granules);
  settings.access = read_write();
  settings.grow = world.chosen.grow;
  settings.device_memory = 1 * TiB;
  settings.chunks.largest = world.chosen.largest_chunk;
  if (world.chosen.share_of_room != 0) {
    settings.chunks.share_of_all = settings.chunks.share_of_mapped = 1;
    settings.chunks.share_of_room = world.chosen.share_of_room;
  }
  settings.wait = world.chosen.wait;
  settings.spreads = world.chosen.spreads;
  if (world.chosen.compacts) settings.compactor = &world.compactor;
  return settings;
}

}  // namespace

const FakeOrder::Ticks& FakeOrder::of(StreamId stream) const {
  static const Ticks none;
  const auto found = streams_.find(stream);
  return found != streams_.end() ? found->second : none;
}

FreeTicket FakeOrder::freed_on(StreamId stream) {
  const std::lock_guard guard{mutex_};
  return {stream, ++streams_[stream].last};
}

void FakeOrder::finish(StreamId stream) {
  const std::lock_guard guard{mutex_};
  streams_[stream].over = streams_[stream].last;
}

void FakeOrder::finish_all() {
  const std::lock_guard guard{mutex_};
  for (auto& [stream, ticks] : streams_) ticks.over = ticks.last;
}

void FakeOrder::order(StreamId stream, StreamId asker) {
  const std::lock_guard guard{mutex_};
  ordered_[{stream, asker}] = of(stream).last;
}

bool FakeOrder::is_over(const FreeTicket& freed) const {
  const std::lock_guard guard{mutex_};
  return freed.is_for_anyone() || freed.tick <= of(freed.stream).over;
}

bool FakeOrder::is_before(const FreeTicket& freed, StreamId asker) const {
  const std::lock_guard guard{mutex_};
  const auto found = ordered_.find({freed.stream, asker});
  return freed.stream == asker || (found != ordered_.end() && freed.tick <= found->second);
}

bool FakeOrder::is_done(const FreeTicket& freed) const {
  const std::lock_guard guard{mutex_};
  return freed.is_for_anyone() || freed.tick <= of(freed.stream).known;
}

void FakeOrder::look(StreamId stream) {
  const std::lock_guard guard{mutex_};
  ++looks_;
  Ticks& ticks = streams_[stream];
  ticks.known = ticks.over;
}

bool FakeOrder::wait(const FreeTicket& freed, std::uint64_t) {
  const std::lock_guard guard{mutex_};
  ++waits_;
  Ticks& ticks = streams_[freed.stream];
  if (waits_succeed_) ticks.over = std::max(ticks.over, freed.tick);
  ticks.known = ticks.over;
  return freed.tick <= ticks.known;
}

bool ArenaCompactor::make_room(Size missing, StreamId /*asker*/, std::uint64_t /*until*/) {
  ++calls_;
  if (!may_) return false;
  Size could = 0;
  for (Arena* const arena : arenas_) could += arena->could_share(missing);
  if (could < missing) return false;
  const Result<Size> freed = compact(missing);
  return freed.ok() && *freed != 0;
}

Result<Size> ArenaCompactor::compact(Size wanted) {
  if (stream_ == nullptr) stream_ = std::make_shared<CopyStream>(driver_);
  Size freed = 0;
  for (Arena* const arena : arenas_) {
    if (freed < wanted)
      freed += TRY(arena->share(wanted - freed, {.stream = stream_, .device = 0}));
  }
  return freed;
}

ArenaWorld::ArenaWorld(const Driver& with, const Given& given)
    : driver(with),
      granule(GIVEN_VALUE(granularity_of(with, here))),
      budget(std::make_shared<LocalBudget>(
          given.limit_granules != 0 ? given.limit_granules * granule : unlimited)),
      spill_budget(std::make_shared<LocalBudget>(given.spill_granules * granule)),
      store(with),
      compactor(with),
      chosen(given) {
  if (const auto served = store.serve(here, budget); !served.ok()) {
    throw std::runtime_error(served.error().text());
  }
  if (given.spill_granules != 0) {
    if (const auto served = store.serve_spilled(Location::host(0), spill_budget); !served.ok()) {
      throw std::runtime_error(served.error().text());
    }
  }
  arena_ = make_arena();
  Block& first = *GIVEN_VALUE(arena_->allocate(1, no_stream));
  base_ = first.address();
  arena_->free(first, {});
  arena_->trim(0);
  store.trim(here, 0);
}

std::unique_ptr<Arena> ArenaWorld::make_arena() {
  auto arena = GIVEN_VALUE(Arena::create(driver, store, order, settings_of(*this)));
  compactor.serve(*arena);
  return arena;
}

Block& ArenaWorld::given_block(Size size, StreamId stream) {
  Block& block = *GIVEN_VALUE(arena().allocate(size, stream));
  fill_pattern(block.address(), looked_at, block.address());
  fill_pattern(block.end() - looked_at, looked_at, block.end());
  return block;
}

std::vector<Block*> ArenaWorld::given_blocks(std::size_t count, Size size, StreamId stream) {
  std::vector<Block*> blocks;
  for (std::size_t i = 0; i < count; ++i) blocks.push_back(&given_block(size, stream));
  return blocks;
}

void ArenaWorld::expect_intact(const Block& block) {
  expect_pattern(block.address(), looked_at, block.address());
  expect_pattern(block.end() - looked_at, looked_at, block.end());
}

void ArenaWorld::check() {
  EXPECT_EQ(arena().violation().value_or("nothing"), "nothing");
  EXPECT_EQ(store.violation().value_or("nothing"), "nothing");
}

}  // namespace cuvmm::test
