// SPDX-License-Identifier: Apache-2.0
// Live memory and spilled memory change places; addresses stay the same.
#include "spill/migration.hpp"

#include <optional>
#include <random>

#include "paused_program.hpp"
#include "spill/placement.hpp"
#include "support/fault_sweep.hpp"
#include "support/scale.hpp"
#include "unit/vmm_world.hpp"

namespace cuvmm::test {
namespace {

class MigrationTest : public PauseTest {
 protected:
  static MemorySettings settings() {
    MemorySettings chosen;
    chosen.limit = SizeLimit::of_bytes(24 * MiB);
    chosen.spill = {SpillTo::Host, SizeLimit::of_bytes(64 * MiB)};
    chosen.compact = Compact::Off;  // its stream would live as long as the context
    return chosen;
  }
  // Few driver calls, since the sweep fails each of them.
  static MemorySettings small() {
    MemorySettings chosen = settings();
    chosen.limit = SizeLimit::of_bytes(8 * MiB);
    return chosen;
  }
  static Size spilled(Program& program) {
    const ChunkCounters counters = device_of(program).store().spilled();
    return counters.physical_in_use - program.memory->holdings().spilled_free(0);
  }
  // The chunks that the program holds and for which `wants(HeldChunk)` is true.
  template <class Wants>
  static BetterPlaces places(const Program& program, Wants wants) {
    BetterPlaces chosen;
    for (const HeldChunk& one : program.memory->holdings().chunks(0)) {
      if (!wants(one) || !chosen.change.insert(one.chunk).second) continue;
      (residency(one.where, 0) == Residency::Near ? chosen.out : chosen.in) += one.size;
    }
    return chosen;
  }
  static bool lies_near(const Program& program, CUdeviceptr address) {
    for (const HeldChunk& one : program.memory->holdings().chunks(0)) {
      if (address >= one.address && address < one.address + one.size) {
        return residency(one.where, 0) == Residency::Near;
      }
    }
    ADD_FAILURE() << "nothing lies there";
    return false;
  }
  static ProgramParts parts_of(Program& program) {
    return {.driver = program.driver, .memory = *program.memory, .calls = program.calls};
  }
  // A program with more memory than fits, and a placement that makes all of it change places.
  struct Changing {
    explicit Changing(const Driver& with) : program(with, small()) {
      program.take_a_little_of_everything();
      program.add(4 * MiB, true);
    }
    void change_all() {
      const auto all = places(program, [](const HeldChunk&) { return true; });
      (void)placement.change(device_of(program), all);
    }
    void look() { placement.step(device_of(program), now_ns()); }

    Program program;
    LastUses uses;
    Placement placement{parts_of(program), uses};
  };
  // From the number-th driver call on, every call answers `answer`; counted from the first call of
  // `begin` if there is one. `then(FaultyDriver&, Changing&)` ends the driver.
  template <class Then>
  static void for_each_call_failing_from(std::optional<Call> begin, CUresult answer, Then then) {
    bool untouched = false;
    for (std::uint64_t number = sweep_start(); !untouched && number < most_calls_of_a_scenario;
         number += sweep_step()) {
      SCOPED_TRACE("driver call " + std::to_string(number) + " and all later answer " +
                   name_of(answer));
      const std::string held_before = held_by_the_process();
      FaultyDriver faulty{driver()};
      {
        Changing changing{faulty};
        faulty.fail_from(number, answer, begin);
        changing.change_all();
        untouched = faulty.faults() == 0;
        then(faulty, changing);
      }
      EXPECT_EQ(retry_releases(), 0u);
      EXPECT_EQ(faulty.released_twice(), 0u);
      faulty.stop_failing();
      EXPECT_EQ(held_by_the_process(), held_before);
      if (HasFailure()) return;
    }
    EXPECT_TRUE(untouched);
  }
  // The exchange creates its own stream, once the program is quiesced.
  static constexpr Call begin_of_exchange = Call::cuStreamCreate;

  // Nothing leaves although everything is asked to.
  static void expect_nothing_leaves(Program& program) {
    LastUses uses;
    Placement placement{parts_of(program), uses};
    const auto moved = placement.change(device_of(program),
                                        places(program, [](const HeldChunk&) { return true; }));
    ASSERT_DONE(moved);
    EXPECT_EQ(moved->out, 0u);
    program.expect_intact();
  }
};

TEST_F(MigrationTest, MemoryMovesOutAndInAtTheSameAddresses) {
  Program program{driver(), settings()};
  program.take_some_of_everything();
  ASSERT_NE(spilled(program), 0u);
  LastUses uses;
  Placement placement{parts_of(program), uses};
  const auto all_near = [](const HeldChunk& one) {
    return residency(one.where, 0) == Residency::Near;
  };
  const Size before = spilled(program);
  const auto out = placement.change(device_of(program), places(program, all_near));
  ASSERT_DONE(out);
  EXPECT_NE(out->out, 0u);
  EXPECT_GT(spilled(program), before);
  program.expect_intact();
  EXPECT_FALSE(program.calls.is_shut());

  const auto all_far = [](const HeldChunk& one) {
    return residency(one.where, 0) == Residency::Far;
  };
  const auto in = placement.change(device_of(program), places(program, all_far));
  ASSERT_DONE(in);
  EXPECT_NE(in->in, 0u);
  EXPECT_LE(device_of(program).budget().committed_bytes(), 24 * MiB);
  program.expect_intact();
  program.take_a_little_of_everything();
  program.expect_intact();
  program.free_all();
}

TEST_F(MigrationTest, TwoBlocksChangePlaces) {
  Program program{driver(), settings()};
  program.add(20 * MiB, true);
  program.add(20 * MiB, true);
  const CUdeviceptr first = program.blocks[0].address;
  const CUdeviceptr second = program.blocks[1].address;
  ASSERT_TRUE(lies_near(program, first + 8 * MiB));
  ASSERT_FALSE(lies_near(program, second + 8 * MiB));
  LastUses uses;
  Placement placement{parts_of(program), uses};
  ASSERT_DONE(
      placement.change(device_of(program), places(program, [](const HeldChunk&) { return true; })));
  EXPECT_FALSE(lies_near(program, first + 8 * MiB));
  EXPECT_TRUE(lies_near(program, second + 8 * MiB));
  program.expect_intact();
  // Tiles know where their memory resides: free memory on the device is used first.
  program.free(1);
  program.add(20 * MiB, true);
  EXPECT_TRUE(lies_near(program, program.blocks.back().address + 8 * MiB));
  program.free_all();
}

TEST_F(MigrationTest, MemoryOpenInAnotherProcessStays) {
  Program program{driver(), settings()};
  program.add(8 * MiB, false);
  program.add(8 * MiB, true);
  for (const Program::Block& block : program.blocks) {
    EXPECT_TRUE(program.memory->held().pin(block.address, pin::legacy_ipc));
  }
  expect_nothing_leaves(program);
}

// Where another process maps the chunks behind a block, it finds that block and no other.
void expect_lent(Program& program, const Program::Block& block) {
  const auto lent = program.memory->lend(block.address, Lending::Secret{1});
  ASSERT_DONE(lent);
  {
    const auto borrowed = program.memory->lending().borrow(lent->id);
    ASSERT_DONE(borrowed);
    Size total = 0;
    for (const ChunkRef& chunk : borrowed->chunks) total += chunk->size();
    const Size alignment = 2 * MiB;
    const Reservation addresses =
        GIVEN_VALUE(Reservation::create(program.driver, total, alignment, alignment));
    Mapping mapping = Mapping::of(addresses);
    MapPlan plan;
    Size offset = 0;
    for (const ChunkRef& chunk : borrowed->chunks) {
      plan.map(mapping, offset, chunk, AccessSet::of(0, Access::ReadWrite));
      offset += chunk->size();
    }
    ASSERT_DONE(plan.commit());
    expect_pattern(mapping.address() + borrowed->offset, block.size, block.seed);
  }
  program.memory->lending().give_back(lent->id);
}

TEST_F(MigrationTest, EachOfManySmallSpilledBlocksIsLentAsItself) {
  // With so much room, a spilled chunk is larger than the blocks need.
  MemorySettings roomy = settings();
  roomy.spill = {SpillTo::Host, SizeLimit::of_bytes(4 * GiB)};
  Program program{driver(), roomy};
  program.add(24 * MiB, false);
  for (int i = 0; i < 100; ++i) program.add(50'000, false);
  ASSERT_NE(spilled(program), 0u);
  for (const Program::Block& block : program.blocks) {
    ASSERT_NO_FATAL_FAILURE(expect_lent(program, block));
    if (HasFailure()) return;
  }
}

TEST_F(MigrationTest, MemoryWithSyncMemopsStays) {
  Program program{driver(), settings()};
  program.add(8 * MiB, false);
  program.add(8 * MiB, true);
  for (const Program::Block& block : program.blocks) {
    program.memory->held().set_sync_memops(block.address, true);
  }
  expect_nothing_leaves(program);
}

TEST_F(MigrationTest, UnfinishedWorkLeavesEverythingInPlace) {
  Program program{driver(), settings()};
  program.add(8 * MiB, true);
  const CallBarrier::Pass inside{program.calls};
  LastUses uses;
  Placement placement{parts_of(program), uses};
  const auto moved =
      placement.change(device_of(program), places(program, [](const HeldChunk&) { return true; }));
  ASSERT_FALSE(moved.ok());
  EXPECT_EQ(moved.error().kind, ErrorKind::TimedOut);
  EXPECT_FALSE(program.calls.is_shut());
  EXPECT_EQ(spilled(program), 0u);
  program.expect_intact();
}

TEST_F(MigrationTest, RandomMigrationsKeepEveryByte) {
  Program program{driver(), settings()};
  LastUses uses;
  Placement placement{parts_of(program), uses};
  std::mt19937_64 random{seed()};
  PRINT_SEED_ON_FAILURE();
  Size moved = 0;
  for (std::uint64_t i = 0; i < scaled(600) && !HasFailure(); ++i) {
    if (program.blocks.size() < 8 || random() % 2 == 0) {
      if (program.blocks.size() < 24) program.add(1 + random() % (3 * MiB), random() % 2 == 0);
    } else {
      program.free(random() % program.blocks.size());
    }
    if (i % 5 != 0) continue;
    const std::uint64_t share = 1 + random() % 4;
    const auto chosen = places(program, [&](const HeldChunk&) { return random() % share == 0; });
    const auto changed = placement.change(device_of(program), chosen);
    ASSERT_DONE(changed);
    moved += changed->in + changed->out;
    program.expect_intact();
    EXPECT_LE(device_of(program).budget().committed_bytes(), 24 * MiB);
  }
  EXPECT_GT(moved, 100 * MiB);
  program.free_all();
}

enum class Failing { Once, FromThereOn };  // the latter counts from the start of the migration

// Whichever call fails, the program continues with all its memory, wherever that now resides; or it
// is held until the driver can map the unbacked addresses again.
TEST_F(MigrationTest, LosesNothingWhicheverCallFails) {
  int stuck = 0;
  for (const Failing failing : {Failing::Once, Failing::FromThereOn}) {
    for (const CUresult fault : {CUDA_ERROR_UNKNOWN, CUDA_ERROR_OUT_OF_MEMORY}) {
      if (failing == Failing::FromThereOn && fault != CUDA_ERROR_UNKNOWN) continue;
      bool untouched = false;
      for (std::uint64_t number = sweep_start(); !untouched && number < most_calls_of_a_scenario;
           number += sweep_step()) {
        SCOPED_TRACE("driver call " + std::to_string(number) +
                     (failing == Failing::Once ? " fails with " : " and all later fail with ") +
                     name_of(fault));
        FaultyDriver faulty{driver()};
        Changing changing{faulty};
        Program& program = changing.program;
        Placement& placement = changing.placement;
        if (failing == Failing::Once) {
          faulty.fail_call(number, fault);
        } else {
          faulty.fail_from(number, fault, begin_of_exchange);
        }
        changing.change_all();
        if (placement.is_stuck()) {
          ++stuck;
          EXPECT_TRUE(program.calls.is_shut()) << "nobody may touch what has nothing behind it";
          changing.look();
          EXPECT_TRUE(placement.is_stuck()) << "the driver still refuses";
        }
        untouched = faulty.faults() == 0;
        faulty.stop_failing();
        retry_releases();
        if (placement.is_stuck()) changing.look();
        EXPECT_FALSE(placement.is_stuck());
        program.expect_to_go_on();
        if (HasFailure()) return;
      }
      EXPECT_TRUE(untouched);
    }
  }
  EXPECT_GT(stuck, 0) << "where the driver maps nothing any more";
}

// The driver has ended and has taken everything back: there is nothing to lose or to wait for.
TEST_F(MigrationTest, AProgramThatEndsDuringAMigrationIsNotHeld) {
  for_each_call_failing_from({}, CUDA_ERROR_DEINITIALIZED, [](FaultyDriver&, Changing& changing) {
    EXPECT_FALSE(changing.placement.is_stuck());
    changing.look();
    EXPECT_FALSE(changing.placement.is_stuck());
    EXPECT_FALSE(changing.program.calls.is_shut());
    changing.program.end();
  });
}

TEST_F(MigrationTest, AHeldProgramContinuesOnceTheDriverHasEnded) {
  int stuck = 0;
  for_each_call_failing_from(begin_of_exchange, CUDA_ERROR_UNKNOWN,
                             [&](FaultyDriver& faulty, Changing& changing) {
                               if (changing.placement.is_stuck()) ++stuck;
                               faulty.fail_from(1, CUDA_ERROR_DEINITIALIZED);
                               changing.look();
                               EXPECT_FALSE(changing.placement.is_stuck());
                               EXPECT_FALSE(changing.program.calls.is_shut());
                               changing.program.end();
                             });
  EXPECT_GT(stuck, 0) << "where the driver maps nothing any more";
}

TEST_F(MigrationTest, APlacementThatHoldsAProgramMayEndWithTheDriver) {
  for_each_call_failing_from(
      begin_of_exchange, CUDA_ERROR_UNKNOWN,
      [](FaultyDriver& faulty, Changing&) { faulty.fail_from(1, CUDA_ERROR_DEINITIALIZED); });
}

// Memory that a program uses moves in, memory that it does not use moves out.
TEST_F(MigrationTest, AUsedBlockMovesInForAnUnusedOne) {
  MemorySettings chosen = settings();
  chosen.limit = SizeLimit::of_bytes(160 * MiB);
  chosen.spill = {SpillTo::Host, SizeLimit::of_bytes(1 * GiB)};
  Program program{driver(), chosen};
  program.add(150 * MiB, true);
  program.add(100 * MiB, true);
  const CUdeviceptr cold = program.blocks[0].address;
  const CUdeviceptr hot = program.blocks[1].address;
  LastUses uses;
  Placement placement{parts_of(program), uses};
  std::uint64_t now = now_ns();
  for (int look = 0; look < 40; ++look) {
    uses.begin_next_moment();
    EXPECT_EQ(placement.step(device_of(program), now), Placement::Attention::Uses);
    uses.note(hot);
    now += 100'000'000;
  }
  EXPECT_TRUE(lies_near(program, hot + 50 * MiB));
  EXPECT_FALSE(lies_near(program, cold + 50 * MiB));
  program.expect_intact();
  program.free_all();
}

}  // namespace
}  // namespace cuvmm::test
