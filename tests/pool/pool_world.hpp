// SPDX-License-Identifier: Apache-2.0
// Stores and pools that the tests of src/pool work on.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "pool/shared_pool.hpp"
#include "support/faulty_driver.hpp"
#include "support/memory.hpp"
#include "unit/vmm_world.hpp"

namespace cuvmm::test {

// The stores of a process, as an engine has them.
class PoolWorld {
 public:
  explicit PoolWorld(const Driver& with, PlaceSettings settings = {})
      : driver(with), places(make_places(std::move(settings))) {}

  Result<ChunkStore*> store_of(Location where) {
    auto& store = stores_[std::pair{where.is_host(), where.id()}];
    if (store == nullptr) {
      auto made = std::make_unique<ChunkStore>(driver);
      auto budget = std::make_shared<LocalBudget>();
      TRY(made->serve(where, budget));
      budgets[where.id()] = budget;
      store = std::move(made);
    }
    return store.get();
  }
  std::shared_ptr<const PoolPlaces> make_places(PlaceSettings settings) {
    return GIVEN_VALUE(try_places(std::move(settings)));
  }
  Result<std::shared_ptr<const PoolPlaces>> try_places(const PlaceSettings& settings) {
    return PoolPlaces::create(
        driver, [this](Location where) { return store_of(where); }, settings);
  }
  std::unique_ptr<ElasticPool> elastic(Size granules, ElasticPool::Settings settings = {}) {
    settings.capacity = granules * places->granule();
    return GIVEN_VALUE(ElasticPool::create(places, settings));
  }
  Size granule() const { return places->granule(); }

  const Driver& driver;
  std::map<int, std::shared_ptr<LocalBudget>> budgets;

 private:
  std::map<std::pair<bool, int>, std::unique_ptr<ChunkStore>> stores_;

 public:
  std::shared_ptr<const PoolPlaces> places;
};

class PoolTest : public VmmTest {
 protected:
  void SetUp() override {
    VmmTest::SetUp();
    world = std::make_unique<PoolWorld>(driver());
    granule = world->granule();
  }
  void TearDown() override {
    world.reset();
    VmmTest::TearDown();
  }
  std::unique_ptr<PoolWorld> world;
  Size granule = 0;
};

inline ::testing::AssertionResult is_sound(const char*, const InvariantViolation& violation) {
  if (!violation) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << *violation;
}
#define EXPECT_SOUND(thing) EXPECT_PRED_FORMAT1(::cuvmm::test::is_sound, (thing).violation())
#define ASSERT_SOUND(thing) ASSERT_PRED_FORMAT1(::cuvmm::test::is_sound, (thing).violation())

// Writes bytes that depend on the seed to both ends of a stretch, or all of a short one.
inline void mark(const ElasticPool& pool, Stretch stretch, std::uint64_t seed) {
  const Size ends = std::min<Size>(stretch.size, 64);
  fill_pattern(pool.base_address() + stretch.offset, ends, seed);
  fill_pattern(pool.base_address() + stretch.end() - ends, ends, seed + 1);
}
inline void expect_mark(const ElasticPool& pool, Stretch stretch, std::uint64_t seed) {
  SCOPED_TRACE("the allocation at offset " + std::to_string(stretch.offset));
  const Size ends = std::min<Size>(stretch.size, 64);
  if (stretch.size >= 2 * ends) {
    expect_pattern(pool.base_address() + stretch.offset, ends, seed);
  }
  expect_pattern(pool.base_address() + stretch.end() - ends, ends, seed + 1);
}

}  // namespace cuvmm::test
