// SPDX-License-Identifier: Apache-2.0
// Random operations against an oracle that knows every allocation and its contents.
#include <random>

#include "pool_world.hpp"
#include "support/scale.hpp"

namespace cuvmm::test {
namespace {

class Oracle {
 public:
  Oracle(PoolWorld& world, std::uint64_t seed)
      : world_(world), granule_(world.granule()), pool_(world.elastic(granules)), random_(seed) {}

  void step() {
    switch (choose(20)) {
      case 0:
        return compact();
      case 1:
        return park_and_unpark();
      case 2:
        return ask_beyond();
      case 3:
      case 4:
      case 5:
      case 6:
        return allocate_anywhere();
      case 7:
      case 8:
      case 9:
      case 10:
        return allocate_at();
      case 11:
        return free_a_part();
      default:
        return free_one();
    }
  }

  void check() const {
    ASSERT_SOUND(*pool_);
    Size bytes = 0;
    for (const auto& [offset, one] : live_) bytes += one.size;
    const ElasticStats stats = pool_->stats();
    ASSERT_EQ(stats.allocated, bytes);
    ASSERT_EQ(stats.free, stats.capacity - bytes);
    if (simulated()) {
      cuvmm_sim_counters counters{};
      ASSERT_EQ(sim()->read_counters(0, &counters), 0);
      ASSERT_EQ(counters.chunks * granule_, stats.physical + world_.places->cached_bytes());
    }
  }
  void check_contents() const {
    for (const auto& [offset, one] : live_) {
      expect_mark(*pool_, {offset, one.size}, one.seed);
      if (::testing::Test::HasFailure()) return;
    }
  }

 private:
  static constexpr Size granules = 24;
  static constexpr Size most_live = 40;
  struct One {
    Size size;
    std::uint64_t seed;
    Movable movable;
  };

  Size choose(Size below) { return std::uniform_int_distribution<Size>{0, below - 1}(random_); }
  Size random_size() {
    return choose(3) == 0 ? 1 + choose(3 * granule_) : 1 + choose(granule_ / 8);
  }
  bool is_free(Stretch wanted) const {
    auto above = live_.lower_bound(wanted.offset);
    if (above != live_.end() && above->first < wanted.end()) return false;
    if (above == live_.begin()) return true;
    --above;
    return above->first + above->second.size <= wanted.offset;
  }
  Movable random_movable() { return choose(3) == 0 ? Movable::Yes : Movable::No; }

  void remember(Stretch at, Movable movable) {
    const std::uint64_t seed = next_seed_ += 2;
    ASSERT_TRUE(is_free(at)) << "what is live was given out again";
    live_.emplace(at.offset, One{at.size, seed, movable});
    mark(*pool_, at, seed);
  }
  void allocate_anywhere() {
    if (live_.size() >= most_live) return free_one();
    const Size size = random_size();
    const Movable movable = random_movable();
    const auto offset = pool_->allocate(size, {.movable = movable});
    if (!offset.ok()) {
      ASSERT_EQ(outcome(offset), "out of addresses");
      ASSERT_LT(pool_->stats().largest_free, size + 512);
      return;
    }
    ASSERT_EQ(*offset % 512, 0u);
    remember({*offset, size}, movable);
  }
  void allocate_at() {
    if (live_.size() >= most_live) return free_one();
    const Stretch at{choose(granules * granule_), random_size()};
    const Movable movable = random_movable();
    const auto done = pool_->allocate_at(at, {.movable = movable});
    if (!at.fits(granules * granule_)) {
      ASSERT_EQ(outcome(done), "invalid offset");
    } else if (!is_free(at)) {
      ASSERT_EQ(outcome(done), "already mapped");
    } else if (outcome(done) == "already mapped") {
      separate_and_allocate_at(at);
    } else {
      ASSERT_OK(done);
      remember(at, movable);
    }
  }
  // Granules share a chunk that the allocation would overlap: that happens only after a compaction,
  // and the next compaction separates them.
  void separate_and_allocate_at(Stretch at) {
    ASSERT_TRUE(is_compacted_);
    if (choose(2) == 0) return;
    compact();
    ASSERT_OK(pool_->allocate_at(at));
    remember(at, Movable::No);
  }
  void free_one() {
    if (live_.empty()) return;
    auto chosen = std::next(live_.begin(), static_cast<std::ptrdiff_t>(choose(live_.size())));
    expect_mark(*pool_, {chosen->first, chosen->second.size}, chosen->second.seed);
    ASSERT_OK(pool_->deallocate({chosen->first, chosen->second.size}));
    ASSERT_EQ(outcome(pool_->deallocate({chosen->first, chosen->second.size})), "not mapped");
    live_.erase(chosen);
  }
  // Frees the first part; the rest becomes an allocation of its own, written again and no longer
  // movable.
  void free_a_part() {
    if (live_.empty()) return;
    auto chosen = std::next(live_.begin(), static_cast<std::ptrdiff_t>(choose(live_.size())));
    const auto [offset, one] = *chosen;
    if (one.size < 2) return;
    const Size gone = 1 + choose(one.size - 1);
    ASSERT_OK(pool_->deallocate({offset, gone}));
    live_.erase(chosen);
    remember({offset + gone, one.size - gone}, Movable::No);
  }
  void compact() {
    is_compacted_ = true;
    const PoolCompaction done = GIVEN_VALUE(pool_->compact());
    std::vector<std::pair<Size, One>> moved;
    for (const Move& move : done.moves) {
      auto entry = live_.extract(move.from);
      ASSERT_FALSE(entry.empty()) << "what is not live was moved";
      ASSERT_EQ(entry.mapped().size, move.size);
      ASSERT_EQ(entry.mapped().movable, Movable::Yes);
      moved.emplace_back(move.to, entry.mapped());
    }
    for (const auto& [offset, one] : moved) {
      ASSERT_TRUE(is_free({offset, one.size}));
      live_.emplace(offset, one);
    }
    check_contents();
  }
  void park_and_unpark() {
    ASSERT_OK(pool_->park());
    ASSERT_FALSE(pool_->is_mapped({0, 1}));
    ASSERT_EQ(GIVEN_VALUE(pool_->unpark()), Activation::Kept);
    check_contents();
  }
  void ask_beyond() {
    const Stretch beyond{granules * granule_ - choose(granule_), granule_ + 1};
    ASSERT_EQ(outcome(pool_->allocate_at(beyond)), "invalid offset");
    ASSERT_EQ(outcome(pool_->deallocate(beyond)), "invalid offset");
    ASSERT_FALSE(pool_->is_mapped(beyond));
  }

  PoolWorld& world_;
  const Size granule_;
  std::unique_ptr<ElasticPool> pool_;
  std::mt19937_64 random_;
  std::map<Size, One> live_;
  std::uint64_t next_seed_ = 0;
  bool is_compacted_ = false;
};

using PoolRandom = VmmTest;

// 100,000 steps at the scale of ./dev test, over both kinds of pools; ./dev stress runs ten times
// as many.
TEST_F(PoolRandom, AnElasticPoolMatchesItsOracle) {
  PRINT_SEED_ON_FAILURE();
  PoolWorld world{driver()};
  Oracle oracle{world, seed()};
  const std::uint64_t steps = scaled(100'000);
  for (std::uint64_t step = 0; step < steps && !HasFailure(); ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    oracle.step();
    if (step % 16 == 0) oracle.check();
  }
  oracle.check_contents();
}

// Models with evictable memory, activated and deactivated at random under a limit: unless a model
// learns of a loss, it still has the bytes that it wrote.
TEST_F(PoolRandom, ASharedPoolReportsEveryLoss) {
  PRINT_SEED_ON_FAILURE();
  constexpr int count = 6;
  PoolWorld world{driver()};
  const Size granule = world.granule();
  const auto pool = GIVEN_VALUE(SharedPool::create(world.places, 12 * granule));
  struct One {
    CUdeviceptr base = 0;
    bool active = true;
    bool lost = false;  // while inactive
    std::map<Size, std::pair<Size, std::uint64_t>> live;
  };
  std::vector<One> models(count);
  const auto name = [](int index) { return "model " + std::to_string(index); };
  for (int i = 0; i < count; ++i) {
    models[i].base = GIVEN_VALUE(
        pool->register_model(name(i), {.capacity = 16 * granule,
                                       .minimum = i == 0 ? granule : 0,
                                       .maximum = 8 * granule,
                                       .priority = i % 3,
                                       .lost = [&models, i](Stretch lost) {
                                         if (models[i].active) {
                                           EXPECT_EQ(models[i].live.erase(lost.offset), 1u);
                                         } else {
                                           models[i].lost = true;
                                         }
                                       }}));
  }
  std::mt19937_64 random{seed()};
  const auto choose = [&](Size below) {
    return std::uniform_int_distribution<Size>{0, below - 1}(random);
  };
  std::uint64_t next_seed = 0;
  const std::uint64_t steps = scaled(20'000);
  for (std::uint64_t step = 0; step < steps && !HasFailure(); ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    const int index = static_cast<int>(choose(count));
    One& model = models[index];
    const Size action = choose(8);
    if (action == 0) {
      ASSERT_OK(pool->deactivate(name(index)));
      model.active = false;
    } else if (action <= 2) {
      const bool was_active = model.active;
      const auto activated = pool->activate(name(index));
      if (!activated.ok()) {
        ASSERT_EQ(outcome(activated), "out of memory");
      } else {
        model.active = true;
        if (!was_active) {
          ASSERT_EQ(*activated == Activation::Lost, model.lost);
        }
        for (auto& [offset, one] : model.live) {
          if (model.lost) {
            fill_pattern(model.base + offset, 64, one.second);
          } else {
            expect_pattern(model.base + offset, 64, one.second);
          }
        }
        model.lost = false;
      }
    } else if (action <= 5) {
      const Size size = 64 + choose(3 * granule);
      const auto at = pool->allocate(name(index), size, {.evictable = Evictable::Yes});
      if (at.ok()) {
        const std::uint64_t mine = ++next_seed;
        model.live[*at] = {size, mine};
        fill_pattern(model.base + *at, 64, mine);
      } else {
        ASSERT_TRUE(outcome(at) == "out of memory" || outcome(at) == "out of addresses" ||
                    (outcome(at) == "not mapped" && !model.active))
            << at.error().text();
      }
    } else if (!model.live.empty() && model.active) {
      const auto one =
          std::next(model.live.begin(), static_cast<std::ptrdiff_t>(choose(model.live.size())));
      expect_pattern(model.base + one->first, 64, one->second.second);
      ASSERT_OK(pool->deallocate(name(index), {one->first, one->second.first}));
      model.live.erase(one);
    }
    if (step % 8 != 0) continue;
    ASSERT_SOUND(*pool);
    if (!simulated()) continue;
    cuvmm_sim_counters counters{};
    ASSERT_EQ(sim()->read_counters(0, &counters), 0);
    const SharedStats stats = pool->stats();
    ASSERT_EQ(counters.chunks * granule, stats.physical + stats.cached);
  }
}

}  // namespace
}  // namespace cuvmm::test
