// SPDX-License-Identifier: Apache-2.0
// A program with memory of every kind, the contents that it wrote, and the object that pauses it.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <random>

#include "served_memory.hpp"
#include "spill/pause.hpp"
#include "support/kernels.hpp"
#include "support/memory.hpp"

namespace cuvmm::test {

inline constexpr Duration timeout{20'000'000};

// Small enough that contents span several pieces, and too little for a ring.
inline constexpr Pauser::HostSizes small_pieces{.piece = 4 * MiB};
// Contents also go through the ring, several times around.
inline constexpr Pauser::HostSizes small_ring{.piece = 4 * MiB, .ring = 8 * MiB};

#define ASSERT_DONE(expression)                                                 \
  do {                                                                          \
    const auto outcome = (expression);                                          \
    ASSERT_TRUE(outcome.ok()) << #expression << ": " << outcome.error().text(); \
  } while (false)

class Program : public ServedMemory {
 public:
  Program(const Driver& with, const MemorySettings& settings,
          const Pauser::HostSizes& sizes = small_pieces)
      : ServedMemory(with, settings), driver(with) {
    chunks.emplace(driver);
    pauser.emplace(
        ProgramParts{.driver = driver, .memory = *memory, .calls = calls, .chunks = &*chunks},
        sizes);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void take_some_of_everything() {
    for (const Size size : {100 * Size{1}, 2000 * Size{1}, 64 * KiB, 100 * KiB, 300 * KiB, 3 * MiB,
                            5 * MiB + 512, 10 * MiB, 2 * MiB}) {
      add(size, false);
      add(size, true);
    }
    // Frees some, so that the rest lies among free memory.
    for (const std::size_t i : {14u, 9u, 4u, 3u}) {
      free(i);
    }
  }
  // One block of each kind.
  void take_a_little_of_everything() {
    for (const Size size : {100 * Size{1}, 100 * KiB, 3 * MiB}) {
      add(size, false);
      add(size, true);
    }
  }
  void add(Size size, bool ordered) {
    CUdeviceptr address = 0;
    const Answer answer = ordered ? memory->allocate_ordered(&address, size, StreamName{})
                                  : memory->allocate(&address, size);
    ASSERT_EQ(answer, Answer{CUDA_SUCCESS}) << size;
    blocks.push_back({address, size, ordered, ++last_seed});
    fill_pattern(address, size, last_seed);
    submission_epoch.leave();
  }
  void free(std::size_t i) {
    const Block& block = blocks[i];
    const Answer answer = block.ordered ? memory->free_ordered(block.address, StreamName{})
                                        : memory->free(block.address);
    EXPECT_EQ(answer, Answer{CUDA_SUCCESS});
    blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(i));
  }
  void expect_intact() {
    for (const Block& block : blocks) expect_pattern(block.address, block.size, block.seed);
    EXPECT_EQ(memory->violation().value_or("nothing"), "nothing");
  }
  // Checks the program after an operation that may have failed half-way.
  void expect_to_go_on() {
    EXPECT_FALSE(calls.is_shut());
    expect_intact();
    add(3 * MiB, false);
    expect_intact();
    free_all();
  }
  void free_all() {
    while (!blocks.empty()) free(blocks.size() - 1);
  }
  // The calls that a program may still make while it ends, whatever they return.
  void end() {
    CUdeviceptr address = 0;
    (void)memory->allocate(&address, 3 * MiB);
    (void)memory->allocate_ordered(&address, 3 * MiB, StreamName{});
    for (const Block& block : blocks) {
      (void)(block.ordered ? memory->free_ordered(block.address, StreamName{})
                           : memory->free(block.address));
    }
    blocks.clear();
  }
  Size on_device() const {
    if (memory->devices().all().empty()) return 0;  // nothing has been allocated yet
    const DeviceMemory& device = *memory->devices().all().front();
    const ChunkCounters chunks = device.chunk_counters();
    return chunks.physical_in_use + chunks.physical_free + chunks.physical_unreleased;
  }

  struct Block {
    CUdeviceptr address;
    Size size;
    bool ordered;
    std::uint64_t seed;
  };
  const Driver& driver;
  std::optional<ProgramChunks> chunks;
  std::optional<Pauser> pauser;
  std::vector<Block> blocks;
  std::uint64_t last_seed = 0;
};

class PauseTest : public DriverContract {
 protected:
  static MemorySettings limited_to(Size limit) {
    MemorySettings settings;
    settings.limit = SizeLimit::of_bytes(limit);
    return settings;
  }
  void SetUp() override {
    DriverContract::SetUp();
    if (attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) == 0) {
      GTEST_SKIP() << "the device cannot map memory of the host";
    }
  }
  static DeviceMemory& device_of(Program& program) {
    return *program.memory->devices().all().front();
  }
};

}  // namespace cuvmm::test
