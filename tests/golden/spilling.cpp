// SPDX-License-Identifier: Apache-2.0
// Memory that leaves its device and comes back: spilling, and pause and resume.
#include "golden/sequence.hpp"
#include "spill/paused_program.hpp"
#include "spill/placement.hpp"
#include "unit/vmm_world.hpp"

namespace cuvmm::test {
namespace {

using Sequences = DriverContract;

// Pieces that share a chunk, a block with chunks of its own, and stream-ordered memory.
struct Paused {
  explicit Paused(const Driver& with) : program(with, {}) {
    program.add(100 * KiB, false);
    program.add(200 * KiB, false);
    program.add(3 * MiB, false);
    program.add(3 * MiB, true);
  }
  Program program;
};

TEST_F(Sequences, AProgramIsPausedAndResumed) {
  const auto given = [](const Driver& with) { return std::make_unique<Paused>(with); };
  const auto act = [](Paused& world) {
    const auto paused = world.program.pauser->pause(timeout, Strict::Yes);
    const auto resumed = world.program.pauser->resume(Partly::No);
    return outcome(paused) + ", " + outcome(resumed);
  };
  expect_sequence("pause_and_resume", sequences<Paused>(given, act));
}

// A program with more memory than fits on its device.
struct Spilled {
  explicit Spilled(const Driver& with) : program(with, settings()) {
    program.add(100 * KiB, false);
    program.add(200 * KiB, false);
    program.add(3 * MiB, true);
    program.add(2 * MiB, false);
  }
  static MemorySettings settings() {
    MemorySettings chosen;
    chosen.limit = SizeLimit::of_bytes(6 * MiB);
    chosen.spill = {SpillTo::Host, SizeLimit::of_bytes(64 * MiB)};
    chosen.compact = Compact::Off;
    return chosen;
  }

  Program program;
  LastUses uses;
  Placement placement{
      ProgramParts{.driver = program.driver, .memory = *program.memory, .calls = program.calls},
      uses};
};

TEST_F(Sequences, SpilledMemoryChangesPlaces) {
  const auto given = [](const Driver& with) { return std::make_unique<Spilled>(with); };
  const auto act = [](Spilled& world) {
    BetterPlaces all;
    for (const HeldChunk& one : world.program.memory->holdings().chunks(0)) {
      if (!all.change.insert(one.chunk).second) continue;
      (residency(one.where, 0) == Residency::Near ? all.out : all.in) += one.size;
    }
    DeviceMemory& device = *world.program.memory->devices().all().front();
    const auto moved = world.placement.change(device, all);
    if (!moved.ok()) return outcome(moved);
    return "out " + std::to_string(moved->out / KiB) + "K, in " + std::to_string(moved->in / KiB) +
           "K";
  };
  expect_sequence("spill_out_and_in", sequences<Spilled>(given, act));
}

}  // namespace
}  // namespace cuvmm::test
