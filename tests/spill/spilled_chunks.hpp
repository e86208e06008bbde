// SPDX-License-Identifier: Apache-2.0
// A program whose own chunks are spilled.
#pragma once

#include "own_virtual_memory.hpp"
#include "spill/chunk_exchange.hpp"
#include "spill/placement.hpp"

namespace cuvmm::test {

// Grants leases up to a number of bytes.
class BoundedLessor final : public Lessor {
 public:
  explicit BoundedLessor(Size most) : left_(most) {}
  void begin(LeasedBudget& budget, const Uuid& device, Size) override {
    if (device != the_host) budget.lease_from(*this);
  }
  Extended extend(LeasedBudget& budget, Size size) override {
    if (size > left_) return Extended::No;
    left_ -= size;
    budget.add_lease(size);
    return Extended::Yes;
  }
  bool wait_for(LeasedBudget& budget, Size size, std::uint64_t, std::uint64_t,
                const StillWanted&) override {
    ++waits;
    return extend(budget, size) == Extended::Yes;
  }
  int waits = 0;

 private:
  Size left_;
};

class SpilledChunks : public PauseTest {
 protected:
  using Handle = CUmemGenericAllocationHandle;
  static constexpr Size granule = 2 * MiB;

  static MemorySettings settings(Size limit = 4 * granule, Size elsewhere = 16 * granule) {
    MemorySettings chosen;
    chosen.limit = SizeLimit::of_bytes(limit);
    chosen.spill = {SpillTo::Host, SizeLimit::of_bytes(elsewhere)};
    chosen.wait = Duration{1'000};
    return chosen;
  }
  // Bounded by the lease alone.
  static MemorySettings leased_settings(BoundedLessor& lessor) {
    MemorySettings chosen = settings();
    chosen.limit = SizeLimit::none();
    chosen.lessor = &lessor;
    return chosen;
  }
  static Size spilled(Program& program) {
    return device_of(program).store().spilled().physical_in_use;
  }
  static Size native(Program& program) { return program.memory->counters(0).native; }
  static ProgramParts parts_of(Program& program) {
    return {.driver = program.driver,
            .memory = *program.memory,
            .calls = program.calls,
            .chunks = &*program.chunks};
  }
  static std::vector<HeldChunk> held(Program& program) {
    std::vector<HeldChunk> held;
    program.chunks->list_held(0, held);
    return held;
  }
  static BetterPlaces all_places(Program& program) {
    BetterPlaces chosen;
    for (const HeldChunk& one : held(program)) {
      if (!chosen.change.insert(one.chunk).second) continue;
      const bool leaves = residency(one.where, 0) == Residency::Near;
      if (leaves) chosen.going.push_back(one.size);
      (leaves ? chosen.out : chosen.in) += one.size;
    }
    return chosen;
  }
  // Everything changes places.
  struct Mover {
    explicit Mover(Program& moved) : program(moved), placement(parts_of(moved), uses) {}
    Migration::Moved move_all() {
      const auto moved = placement.change(device_of(program), all_places(program));
      EXPECT_TRUE(moved.ok()) << moved.error().text();
      return moved.ok() ? *moved : Migration::Moved{};
    }
    Program& program;
    LastUses uses;
    Placement placement;
  };
  static void pause_and_resume(Program& program) {
    ASSERT_DONE(program.pauser->pause(timeout, Strict::Yes));
    ASSERT_DONE(program.pauser->resume(Partly::No));
    EXPECT_FALSE(program.calls.is_shut());
  }
  static CUresult answer_of_creation(Program& program, Handle* chunk, Size size,
                                     const CUmemAllocationProp& properties) {
    ProgramCreation creation{program.driver, *program.memory, *program.chunks};
    return creation.create(chunk, size, properties, [&](Handle* made) {
      return program.driver.cuMemCreate(made, size, &properties, 0);
    });
  }
  static CUmemAllocationProp plain() { return OwnVirtualMemory::plain(); }
  static CUmemAllocationProp exportable() { return OwnVirtualMemory::exportable(); }
};

}  // namespace cuvmm::test
