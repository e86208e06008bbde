// SPDX-License-Identifier: Apache-2.0
// Elastic pools: compaction, and parking.
#include "golden/sequence.hpp"
#include "pool/pool_world.hpp"

namespace cuvmm::test {
namespace {

using Sequences = DriverContract;

struct Pool : PoolWorld {
  explicit Pool(const Driver& with) : PoolWorld(with), pool(elastic(6)) {
    for (const Size at : {Size{0}, Size{1}, Size{3}}) {
      GIVEN_VALUE(allocated({at * granule() + at * 64 * KiB, 64 * KiB}, {}));
    }
    GIVEN_VALUE(allocated({5 * granule(), 64 * KiB}, {.movable = Movable::Yes}));
  }
  Result<Size> allocated(Stretch stretch, AllocationTraits traits) {
    TRY(pool->allocate_at(stretch, traits));
    return stretch.offset;
  }
  std::unique_ptr<ElasticPool> pool;
};

const auto given_pool = [](const Driver& with) { return std::make_unique<Pool>(with); };

TEST_F(Sequences, AnElasticPoolIsCompacted) {
  expect_sequence("pool_compaction", sequences<Pool>(given_pool, [](Pool& world) {
                    return outcome(world.pool->compact());
                  }));
}

TEST_F(Sequences, AnElasticPoolIsParkedAndActivated) {
  expect_sequence("pool_parking", sequences<Pool>(given_pool, [](Pool& world) {
                    return outcome(world.pool->park()) + ", " + outcome(world.pool->unpark());
                  }));
}

TEST_F(Sequences, AnElasticPoolComesBackWithOtherMemory) {
  expect_sequence("pool_dropped", sequences<Pool>(given_pool, [](Pool& world) {
                    const std::string parked = outcome(world.pool->park());
                    (void)world.pool->drop_parked();
                    (void)world.pool->trim();
                    return parked + ", " + outcome(world.pool->unpark());
                  }));
}

}  // namespace
}  // namespace cuvmm::test
