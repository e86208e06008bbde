// SPDX-License-Identifier: Apache-2.0
// Every scenario of the mapping core with each of its driver calls failing in turn.
#include "support/fault_sweep.hpp"
#include "support/kernels.hpp"
#include "vmm_world.hpp"

namespace cuvmm::test {
namespace {

class FaultTest : public VmmTest {};

// A world with a plan to commit or chunks to insert, prepared while nothing fails.
struct Prepared : VmmWorld {
  using VmmWorld::VmmWorld;
  MapPlan plan;
  std::vector<ChunkRef> chunks_to_come;
  std::unique_ptr<Mapping> other;
  std::unique_ptr<GivenStream> stream;
  std::string then;  // expected contents afterwards, if the scenario knows
};

std::string describe_all(Prepared& world) {
  return describe(world.mapping) + "---\n" + (world.other != nullptr ? describe(*world.other) : "");
}

void check_all(Prepared& world) {
  // The other mapping has its own addresses.
  expect_true(world.mapping);
  if (world.other != nullptr) expect_true(*world.other);
  EXPECT_EQ(world.store.violation().value_or("nothing"), "nothing");
}

using Prepare = std::function<void(Prepared&)>;
using Act = std::function<Result<void>(Prepared&)>;

Scenario<Prepared> scenario(Prepare prepare, Act act, Prepare then) {
  return {.given =
              [prepare](const Driver& driver) {
                auto world = std::make_unique<Prepared>(driver);
                prepare(*world);
                return world;
              },
          .when = act,
          .then = then,
          .snapshot = describe_all,
          .check = check_all};
}

Scenario<Prepared> committing(Prepare prepare, Prepare then) {
  return scenario(
      prepare, [](Prepared& world) { return world.plan.commit(); }, then);
}

TEST_F(FaultTest, Map) {
  sweep_faults(committing(
      [](Prepared& world) {
        world.given_mapped(6, {1}, 1);
        world.plan.map(world.mapping, 0, world.chunk(2), read_write());
        world.plan.map(world.mapping, 2 * world.granule, world.chunk(), read_write());
        world.plan.map(world.mapping, 4 * world.granule, world.chunk(),
                       AccessSet::of(0, Access::Read));
      },
      [](Prepared& world) { EXPECT_EQ(world.mapping.chunk_count(), 4u); }));
}

TEST_F(FaultTest, Unmap) {
  sweep_faults(committing(
      [](Prepared& world) {
        world.given_mapped(0, {1, 2, 1}, 1);
        world.given_mapped(5, {1}, 2);
        world.plan.unmap(world.mapping, world.stretch(0, 6));
      },
      [](Prepared& world) { EXPECT_EQ(world.mapping.chunk_count(), 0u); }));
}

TEST_F(FaultTest, Move) {
  sweep_faults(committing(
      [](Prepared& world) {
        world.given_mapped(0, {1, 1, 2}, 1);
        world.then = std::to_string(read_word(world.address(0)));
        for (const Size from : {Size{0}, Size{1}}) {
          const Size offset = from * world.granule;
          world.plan.map(world.mapping, offset + 5 * world.granule,
                         world.mapping.find(offset)->chunk, read_write());
          world.plan.unmap(world.mapping, offset);
        }
      },
      [](Prepared& world) {
        EXPECT_FALSE(world.mapping.covers(world.stretch(0, 1)));
        EXPECT_TRUE(world.mapping.covers(world.stretch(5, 2)));
        EXPECT_EQ(std::to_string(read_word(world.address(5))), world.then);
      }));
}

TEST_F(FaultTest, ExchangeBehindTheSameAddresses) {
  sweep_faults(committing(
      [](Prepared& world) {
        world.given_mapped(0, {1, 1, 1}, 1);
        world.plan.unmap(world.mapping, world.stretch(0, 3));
        world.plan.map(world.mapping, 0, world.chunk(3), read_write());
      },
      [](Prepared& world) { EXPECT_EQ(world.mapping.chunk_count(), 1u); }));
}

TEST_F(FaultTest, Access) {
  sweep_faults(committing(
      [](Prepared& world) {
        world.given_mapped(0, {1, 1, 1}, 1);
        world.given_mapped(5, {1}, 2);
        MapPlan first;
        first.allow(world.mapping, world.stretch(1, 1), AccessSet::of(0, Access::Read));
        ASSERT_OK(first.commit());
        world.plan.allow(world.mapping, world.stretch(0, 3), AccessSet::of(0, Access::Read));
        world.plan.allow(world.mapping, world.stretch(5, 1), AccessSet::none());
      },
      [](Prepared& world) {
        EXPECT_EQ(world.mapping.find(0)->access, AccessSet::of(0, Access::Read));
        EXPECT_TRUE(world.mapping.find(5 * world.granule)->access.is_none());
      }));
}

TEST_F(FaultTest, AccessOfTwoDevices) {
  NEEDS_DEVICES(2);
  sweep_faults(committing(
      [](Prepared& world) {
        world.given_mapped(0, {1, 1}, 1);
        world.plan.allow(world.mapping, world.stretch(0, 2), read_write(0).with(1, Access::Read));
        world.plan.map(world.mapping, 2 * world.granule, world.chunk(), read_write(0).with(1));
      },
      [](Prepared& world) {
        EXPECT_EQ(world.mapping.find(0)->access.of_device(1), Access::Read);
      }));
}

TEST_F(FaultTest, SeveralMappingsAtOnce) {
  sweep_faults(committing(
      [](Prepared& world) {
        // Each mapping has one half of the reservation.
        world.mapping = GIVEN_VALUE(Mapping::of(world.addresses, world.stretch(0, 4)));
        world.given_mapped(0, {1, 1}, 1);
        world.other = std::make_unique<Mapping>(
            GIVEN_VALUE(Mapping::of(world.addresses, world.stretch(4, 4))));
        MapPlan first;
        first.map(*world.other, 0, world.chunk(), read_write());
        ASSERT_OK(first.commit());
        world.plan.unmap(*world.other, 0);
        world.plan.map(*world.other, 0, world.mapping.find(0)->chunk, read_write());
        world.plan.unmap(world.mapping, 0);
        world.plan.map(*world.other, world.granule, world.chunk(2), read_write());
      },
      [](Prepared& world) {
        EXPECT_EQ(world.mapping.chunk_count(), 1u);
        EXPECT_EQ(world.other->chunk_count(), 2u);
      }));
}

// If the driver has no memory, it is asked again after reclaiming, so one refusal goes unnoticed.
bool is_asked_again(const std::string& name, CUresult fault) {
  return fault == CUDA_ERROR_OUT_OF_MEMORY &&
         (name == "cuMemCreate" || name == "cuDeviceGetAttribute");
}

// A whole life: chunks created, addresses reserved, mapped, exported and imported, and all
// released.
TEST_F(FaultTest, AWholeLife) {
  auto whole_life = scenario(
      [](Prepared& world) { world.given_mapped(0, {1}, 1); },
      [](Prepared& world) -> Result<void> {
        const Reservation addresses =
            TRY(Reservation::create(world.driver, 4 * world.granule, world.granule));
        Mapping mapping = Mapping::of(addresses);
        const ChunkRef own = TRY(world.store.take({world.granule, world.here, Export::Yes}));
        const Fd fd = TRY(own.export_fd());
        const ChunkRef imported =
            ChunkRef::adopt(TRY(Chunk::import_fd(world.driver, fd, world.granule)));
        MapPlan plan;
        plan.map(mapping, 0, own, read_write());
        plan.map(mapping, world.granule, imported, read_write());
        TRY(plan.commit());
        plan.unmap(mapping, 0);
        return plan.commit();
      },
      [](Prepared& world) { EXPECT_EQ(world.store.counters(world.here).physical_exported, 0u); });
  whole_life.makes_up_for = is_asked_again;
  sweep_faults(whole_life);
}

TEST_F(FaultTest, TakingFromTheStore) {
  auto taking = scenario(
      [](Prepared& world) {
        for (ChunkRef& chunk : world.chunks({1, 1})) world.store.give(std::move(chunk));
      },
      [](Prepared& world) -> Result<void> {
        world.chunks_to_come = TRY(world.store.take_many(world.kind(1), 4));
        return {};
      },
      [](Prepared& world) { EXPECT_EQ(world.chunks_to_come.size(), 4u); });
  taking.makes_up_for = is_asked_again;
  sweep_faults(taking);
}

TEST_F(FaultTest, Trim) {
  sweep_faults(scenario(
      [](Prepared& world) {
        for (ChunkRef& chunk : world.chunks({1, 2, 1})) world.store.give(std::move(chunk));
      },
      [](Prepared& world) -> Result<void> {
        world.store.trim(world.here, 0);
        return {};
      },
      [](Prepared& world) {
        EXPECT_EQ(world.store.counters(world.here).physical_free, 0u);
        EXPECT_EQ(world.budget->committed_bytes(),
                  world.store.counters(world.here).physical_unreleased);
      }));
}

}  // namespace
}  // namespace cuvmm::test
