// SPDX-License-Identifier: Apache-2.0
// Random operations of eight threads on two devices over everything that serves memory, with pauses
// in which all counts must add up.
#include <gtest/gtest.h>

#include <barrier>
#include <cstdlib>
#include <thread>

#include "base/log.hpp"
#include "support/scale.hpp"
#include "vmm/deferred_release.hpp"
#include "worker.hpp"

namespace cuvmm::test {
namespace {

constexpr int threads = 8;
constexpr std::uint64_t operations_between_pauses = 4000;  // of all threads

struct Setting {
  const char* name;
  Grow grow;
  FreeMode free;
  unsigned limit_percent;
  unsigned spill_percent = 0;
};

// CUVMM_STRESS_OPERATIONS, per setting; a small number unless it is set.
std::uint64_t operations() {
  const char* text = std::getenv("CUVMM_STRESS_OPERATIONS");
  return text != nullptr ? std::strtoull(text, nullptr, 0) : scaled(8'000);
}

void PrintTo(const Setting& setting, std::ostream* to) {
  *to << setting.name;
}

class MemoryStress : public DriverContract, public ::testing::WithParamInterface<Setting> {
 protected:
  void SetUp() override {
    DriverContract::SetUp();
    NEEDS_SIMULATED_DRIVER();
    NEEDS_DEVICES(Program::devices);
    ASSERT_TRUE(set_up_log({.file = "/dev/null"}).ok());  // refusals are part of the test
    size_t bytes = 0;
    GIVEN(driver().cuDeviceTotalMem(&bytes, device()));
    card_ = bytes;
  }
  void TearDown() override {
    ASSERT_TRUE(set_up_log({}).ok());
    DriverContract::TearDown();
  }

  void run(std::uint64_t operations);
  void make_streams(Common& common);
  void end_streams(Common& common);
  void quiesce(Common& common);
  void expect_all_intact(Common& common);
  void expect_it_adds_up(Common& common);
  void expect_room_is_had(Common& common);
  Size limit() const { return card_ / 100 * GetParam().limit_percent; }
  Size spill() const { return card_ / 100 * GetParam().spill_percent; }
  MemorySettings settings() const {
    MemorySettings chosen{.limit = SizeLimit::of_bytes(limit()),
                          .grow = GetParam().grow,
                          .free = GetParam().free,
                          .wait = Duration{50'000}};
    if (spill() != 0) chosen.spill = {SpillTo::Host, SizeLimit::of_bytes(spill())};
    return chosen;
  }

  Size card_ = 0;
  Size most_spilled_ = 0;
};

void MemoryStress::make_streams(Common& common) {
  for (int device = 0; device < Program::devices; ++device) {
    common.program.make_current(device);
    common.streams[static_cast<std::size_t>(device)] = {
        CU_STREAM_LEGACY,
        common.program.make_stream(CU_STREAM_DEFAULT),
        common.program.make_stream(CU_STREAM_DEFAULT),
        common.program.make_stream(CU_STREAM_NON_BLOCKING),
        common.program.make_stream(CU_STREAM_NON_BLOCKING),
        common.program.make_stream(CU_STREAM_NON_BLOCKING),
    };
  }
}

void MemoryStress::end_streams(Common& common) {
  for (int device = 0; device < Program::devices; ++device) {
    common.program.make_current(device);
    for (CUstream stream : common.streams[static_cast<std::size_t>(device)]) {
      if (stream != CU_STREAM_LEGACY) common.program.end_stream(stream);
    }
  }
}

void MemoryStress::quiesce(Common& common) {
  GIVEN(sim()->set_faults(nullptr) == 0 ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN);
  common.has_faults.store(false);
  for (int device = 0; device < Program::devices; ++device) {
    common.program.make_current(device);
    ASSERT_CUDA(common.program.synchronize_context());
  }
  ASSERT_EQ(retry_releases(), 0U);
}

void MemoryStress::expect_all_intact(Common& common) {
  for (const BlockRef& block : common.oracle.live()) {
    common.program.make_current(block->device);
    auto work = std::make_unique<Touch>(Touch{.oracle = common.oracle,
                                              .block = block,
                                              .holds_something = block->is_used,
                                              .before = block->stamp,
                                              .after = block->stamp,
                                              .predecessors = {}});
    block->pending.fetch_add(1);
    ASSERT_CUDA(common.program.launch(block->device, CU_STREAM_LEGACY, work.release()));
    if (block->by == By::Driver) continue;
    const auto facts = common.program.memory().find(block->address);
    ASSERT_TRUE(facts);
    ASSERT_EQ(facts->asked, block->size);
  }
  for (int device = 0; device < Program::devices; ++device) {
    common.program.make_current(device);
    ASSERT_CUDA(common.program.synchronize_context());
  }
}

// cuvmm's own counts, the program's holdings, and what the driver has given to cuvmm agree.
void MemoryStress::expect_it_adds_up(Common& common) {
  Memory& memory = common.program.memory();
  ASSERT_EQ(memory.violation().value_or("nothing"), "nothing");
  for (int device = 0; device < Program::devices; ++device) {
    common.program.make_current(device);
    for (int pool = -1; pool < Program::pools_a_device; ++pool) {
      const CUmemoryPool handle =
          pool < 0 ? common.program.default_pool(device) : common.program.pool(device, pool);
      const Size held = common.oracle.live_bytes([&](const Block& block) {
        const CUmemoryPool of =
            block.pool != nullptr ? block.pool : common.program.default_pool(block.device);
        return block.kind == Kind::Ordered && block.by == By::Us && of == handle;
      });
      const PoolMemory* const ours = memory.pools().serve(handle);
      ASSERT_NE(ours, nullptr);
      ASSERT_EQ(ours->used(), held) << "pool " << pool << " of device " << device;
    }
    const Size held = common.oracle.live_bytes(
        [&](const Block& block) { return block.device == device && block.by == By::Us; });
    const ChunkCounters elsewhere = memory.devices().serve(device)->store().spilled();
    ASSERT_LE(elsewhere.physical_in_use + elsewhere.physical_free, spill());
    most_spilled_ = std::max(most_spilled_, elsewhere.physical_in_use);
    const auto info = memory.info({.free = card_, .total = card_});
    ASSERT_LE(info.free + held, info.total + elsewhere.physical_in_use) << "device " << device;
    const MemoryCounters counters = memory.counters(device);
    ASSERT_EQ(counters.requested_live, held);
    ASSERT_LE(counters.physical_held(), limit());
    // The driver has no live memory of its own now; trimming releases what its pools kept.
    for (int pool = -1; pool < Program::pools_a_device; ++pool) {
      const CUmemoryPool handle =
          pool < 0 ? common.program.default_pool(device) : common.program.pool(device, pool);
      ASSERT_CUDA(driver().cuMemPoolTrimTo(handle, 0));
    }
    driver().cuDeviceGraphMemTrim(device);
    cuvmm_sim_counters driver_says{};
    ASSERT_EQ(sim()->read_counters(device, &driver_says), 0);
    ASSERT_EQ(driver_says.physical_bytes, counters.physical_held()) << "device " << device;
  }
}

// Granules without live memory are available to any request.
void MemoryStress::expect_room_is_had(Common& common) {
  for (int device = 0; device < Program::devices; ++device) {
    common.program.make_current(device);
    Size touched = 0;
    for (const BlockRef& block : common.oracle.live()) {
      if (block->device != device) continue;
      touched += block->kind == Kind::Ordered ? round_up(block->end(), usual_granule) -
                                                    round_down(block->address, usual_granule)
                                              : round_up(block->size, usual_granule);
    }
    if (touched + usual_granule >= limit()) continue;
    const Size room = round_down(limit() - touched, usual_granule);
    CUdeviceptr address = 0;
    By by = By::Us;
    ASSERT_CUDA(common.program.allocate_ordered(&address, room, nullptr, CU_STREAM_LEGACY, &by))
        << room << " of " << limit() << " bytes on device " << device;
    ASSERT_CUDA(common.program.free_ordered(address, CU_STREAM_LEGACY));
    ASSERT_CUDA(common.program.allocate(&address, room, &by))
        << room << " of " << limit() << " bytes on device " << device;
    ASSERT_CUDA(common.program.free(address));
  }
}

void MemoryStress::run(std::uint64_t operations) {
  Program program{settings()};
  Oracle oracle;
  Common common{.program = program, .oracle = oracle, .card = card_, .free = GetParam().free};
  make_streams(common);

  const std::uint64_t rounds = operations / operations_between_pauses + 1;
  bool ends = false;
  std::barrier pause{threads + 1};
  const auto live_as = [&](int number) {
    Worker worker{common, seed() * 1000 + static_cast<std::uint64_t>(number), number == 0};
    const auto guarded = [&](auto act) {
      try {
        act();
      } catch (const std::exception& thrown) {
        oracle.fail(thrown.what());
      }
    };
    while (true) {
      pause.arrive_and_wait();
      if (ends) break;
      guarded([&] { worker.run(operations_between_pauses / threads); });
      pause.arrive_and_wait();
      guarded([&] { worker.free_those_of_the_driver(); });
      pause.arrive_and_wait();
    }
    guarded([&] { worker.free_all(); });
    pause.arrive_and_wait();
  };
  std::vector<std::jthread> crowd;
  for (int number = 0; number < threads; ++number) crowd.emplace_back(live_as, number);

  for (std::uint64_t round = 0; round < rounds && !oracle.has_failed() && !HasFailure(); ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    pause.arrive_and_wait();
    pause.arrive_and_wait();
    sim()->set_faults(nullptr);
    pause.arrive_and_wait();
    quiesce(common);
    if (!oracle.has_failed() && !HasFailure()) expect_all_intact(common);
    if (!oracle.has_failed() && !HasFailure()) expect_it_adds_up(common);
    if (!oracle.has_failed() && !HasFailure()) expect_room_is_had(common);
  }
  ends = true;
  pause.arrive_and_wait();
  pause.arrive_and_wait();
  crowd.clear();
  quiesce(common);  // otherwise work that still runs would cause further failures
  ASSERT_EQ(oracle.failure(), "") << oracle.faulted();
  if (HasFailure()) return;

  for (const BlockRef& block : common.handed_on) {
    program.make_current(block->device);
    oracle.end(block);
    ASSERT_CUDA(program.free(block->address));
  }
  end_streams(common);
  quiesce(common);
  ASSERT_EQ(program.memory().violation().value_or("nothing"), "nothing");
  for (int device = 0; device < Program::devices; ++device) {
    program.make_current(device);
    program.memory().make_room();
    EXPECT_EQ(program.memory().counters(device).physical_held(), 0U) << "device " << device;
    ChunkStore& store = program.memory().devices().serve(device)->store();
    store.reclaim_spilled(unlimited);
    EXPECT_EQ(store.spilled().physical_in_use + store.spilled().physical_free, 0U);
  }
  EXPECT_EQ(most_spilled_ != 0, spill() != 0) << "of no use if nothing lies elsewhere";
}

TEST_P(MemoryStress, AddsUp) {
  SCOPED_TRACE("repeat with CUVMM_TEST_SEED=" + std::to_string(seed()) +
               " CUVMM_STRESS_OPERATIONS=" + std::to_string(operations()));
  run(operations());
}

INSTANTIATE_TEST_SUITE_P(
    Random, MemoryStress,
    ::testing::Values(Setting{"LooseExact", Grow::Loose, FreeMode::Exact, 75},
                      Setting{"LooseRelaxed", Grow::Loose, FreeMode::Relaxed, 75},
                      Setting{"TightExact", Grow::Tight, FreeMode::Exact, 50},
                      Setting{"TightRelaxed", Grow::Tight, FreeMode::Relaxed, 90},
                      Setting{"Spilled", Grow::Loose, FreeMode::Relaxed, 30, 60}),
    [](const auto& setting) { return std::string{setting.param.name}; });

}  // namespace
}  // namespace cuvmm::test
