// SPDX-License-Identifier: Apache-2.0
// Memory that the program manages itself and created without a handle type is made exportable
// while the program runs.
#include "spill/chunk_exchange.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <thread>

#include "own_virtual_memory.hpp"
#include "support/fault_sweep.hpp"

namespace cuvmm::test {
namespace {

class ChunkExchangeTest : public DriverContract {
 protected:
  static constexpr Size granule = 2 * MiB;

  static ProgramParts parts(Program& program) {
    return {.driver = program.driver,
            .memory = *program.memory,
            .calls = program.calls,
            .chunks = &*program.chunks,
            .captures = &program.captures};
  }
  static Result<void> exchange(Program& program, CUdeviceptr address, Duration within = timeout) {
    const ProgramParts of_program = parts(program);
    ChunkExchange exchange{of_program};
    const auto outcome = exchange.make_exportable(address, within);
    EXPECT_FALSE(program.calls.is_shut());
    return outcome;
  }
  static bool is_exportable(OwnVirtualMemory& own, Size offset) {
    CUmemAllocationProp properties{};
    EXPECT_CUDA(driver().cuMemGetAllocationPropertiesFromHandle(&properties, own.backing(offset)));
    return properties.requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  }
  // Takes all of the device's memory but `but`.
  static std::vector<CUdeviceptr> take_all(Size but) {
    std::vector<CUdeviceptr> taken;
    for (Size size = memory_info().free; size >= granule; size /= 2) {
      CUdeviceptr address = 0;
      while (memory_info().free >= but + size &&
             driver().cuMemAlloc(&address, size) == CUDA_SUCCESS) {
        taken.push_back(address);
      }
    }
    return taken;
  }
};

TEST_F(ChunkExchangeTest, ChangesNothingThatTheProgramSees) {
  Program program{driver(), {}};
  OwnVirtualMemory own{program, 32 * MiB};
  const auto chunk = own.add(0, 3 * granule);
  fill_pattern(own.address(), 3 * granule, 1);
  const Size free_before = memory_info().free;
  ASSERT_DONE(exchange(program, own.address() + 5));
  EXPECT_EQ(memory_info().free, free_before) << "the old chunk is released";
  EXPECT_TRUE(is_exportable(own, 0));
  EXPECT_TRUE(program.chunks->asked_properties(chunk).has_value());
  EXPECT_TRUE(program.chunks->asked_properties_at(own.address() + granule).has_value());
  expect_pattern(own.address(), 3 * granule, 1);
  EXPECT_EQ(own.access(0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  EXPECT_EQ(program.chunks->handle_of(chunk), own.backing(0));
  EXPECT_EQ(program.chunks->retain(own.address()), chunk);
  program.chunks->release(chunk);
  own.map(4 * granule, 3 * granule, chunk);
  own.allow(4 * granule, 3 * granule);
  expect_pattern(own.address() + 4 * granule, 3 * granule, 1);
}

TEST_F(ChunkExchangeTest, CoversWhatIsMappedWithoutAGap) {
  Program program{driver(), {}};
  OwnVirtualMemory own{program, 32 * MiB};
  own.add(0, granule);
  own.add(granule, granule);
  own.release(own.add(2 * granule, 2 * granule));  // the mapping alone keeps it
  own.add(6 * granule, granule);
  fill_pattern(own.address(), 4 * granule, 1);
  ASSERT_DONE(exchange(program, own.address() + granule));
  EXPECT_FALSE(is_exportable(own, 0)) << "it begins at the mapping that was asked for";
  EXPECT_TRUE(is_exportable(own, granule));
  EXPECT_TRUE(is_exportable(own, 2 * granule));
  EXPECT_FALSE(is_exportable(own, 6 * granule));
  expect_pattern(own.address(), 4 * granule, 1);
}

TEST_F(ChunkExchangeTest, KeepsAliasesAndTheirAccess) {
  Program program{driver(), {}};
  OwnVirtualMemory own{program, 32 * MiB};
  const auto chunk = own.add(4 * granule, granule);
  fill_pattern(own.address() + 4 * granule, granule, 1);
  own.map(0, granule, chunk);
  own.allow(0, granule, CU_MEM_ACCESS_FLAGS_PROT_READ);
  own.map(granule, granule, chunk);  // open to nobody
  ASSERT_DONE(exchange(program, own.address()));
  for (const Size at : {Size{0}, granule, 4 * granule}) EXPECT_TRUE(is_exportable(own, at)) << at;
  EXPECT_EQ(own.backing(0), own.backing(4 * granule));
  EXPECT_EQ(own.backing(granule), own.backing(4 * granule));
  EXPECT_EQ(own.access(0), CU_MEM_ACCESS_FLAGS_PROT_READ);
  EXPECT_EQ(own.access(granule), CU_MEM_ACCESS_FLAGS_PROT_NONE);
  EXPECT_EQ(own.access(4 * granule), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  expect_pattern(own.address(), granule, 1);
}

TEST_F(ChunkExchangeTest, CopiesWhatTheProgramHasClosed) {
  Program program{driver(), {}};
  OwnVirtualMemory own{program, 8 * MiB};
  own.add(0, granule);
  fill_pattern(own.address(), granule, 1);
  own.allow(0, granule, CU_MEM_ACCESS_FLAGS_PROT_NONE);
  ASSERT_DONE(exchange(program, own.address()));
  EXPECT_EQ(own.access(0), CU_MEM_ACCESS_FLAGS_PROT_NONE);
  own.allow(0, granule);
  expect_pattern(own.address(), granule, 1);
}

TEST_F(ChunkExchangeTest, StaysExportableThroughAPause) {
  if (attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) == 0) {
    GTEST_SKIP() << "the device cannot map memory of the host";
  }
  Program program{driver(), {}};
  OwnVirtualMemory own{program, 8 * MiB};
  own.add(0, granule);
  fill_pattern(own.address(), granule, 1);
  ASSERT_DONE(program.pauser->pause(timeout, Strict::Yes));
  ASSERT_DONE(program.pauser->resume(Partly::No));
  ASSERT_DONE(exchange(program, own.address()));
  ASSERT_DONE(program.pauser->pause(timeout, Strict::Yes));
  ASSERT_DONE(program.pauser->resume(Partly::No));
  EXPECT_TRUE(is_exportable(own, 0));
  expect_pattern(own.address(), granule, 1);
}

TEST_F(ChunkExchangeTest, NeedsMemoryForOneMoreChunkOnly) {
  NEEDS_SIMULATED_DRIVER();
  Program program{driver(), {}};
  OwnVirtualMemory own{program, 32 * MiB};
  for (Size at = 0; at < 4; ++at) own.add(at * granule, granule);
  fill_pattern(own.address(), 4 * granule, 1);
  auto others = take_all(granule);
  ASSERT_DONE(exchange(program, own.address()));
  EXPECT_TRUE(is_exportable(own, 3 * granule));
  expect_pattern(own.address(), 4 * granule, 1);
  for (const CUdeviceptr other : others) EXPECT_CUDA(driver().cuMemFree(other));
}

TEST_F(ChunkExchangeTest, WithoutThatMemoryChangesNothing) {
  NEEDS_SIMULATED_DRIVER();
  Program program{driver(), {}};
  OwnVirtualMemory own{program, 8 * MiB};
  own.add(0, granule);
  fill_pattern(own.address(), granule, 1);
  const auto chunk_before = own.backing(0);
  auto others = take_all(0);
  const auto refused = exchange(program, own.address());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::OutOfMemory) << refused.error().text();
  EXPECT_EQ(own.backing(0), chunk_before);
  expect_pattern(own.address(), granule, 1);
  for (const CUdeviceptr other : others) EXPECT_CUDA(driver().cuMemFree(other));
}

TEST_F(ChunkExchangeTest, TakesTheMemoryThatCuvmmKeepsFree) {
  NEEDS_SIMULATED_DRIVER();
  Program program{driver(), {}};
  OwnVirtualMemory own{program, 8 * MiB};
  own.add(0, granule);
  fill_pattern(own.address(), granule, 1);
  program.add(granule, false);
  program.free_all();
  auto others = take_all(0);
  ASSERT_DONE(exchange(program, own.address()));
  expect_pattern(own.address(), granule, 1);
  for (const CUdeviceptr other : others) EXPECT_CUDA(driver().cuMemFree(other));
}

TEST_F(ChunkExchangeTest, RefusesWhatMustStayAsItIs) {
  const auto is_refused = [&](const std::function<void(Program&, OwnVirtualMemory&)>& make,
                              const char* why) {
    Program program{driver(), {}};
    OwnVirtualMemory own{program, 32 * MiB};
    own.add(0, granule);
    own.add(granule, granule);
    const auto first = own.backing(0);
    make(program, own);
    const auto refused = exchange(program, own.address());
    ASSERT_FALSE(refused.ok()) << why;
    EXPECT_EQ(refused.error().kind, ErrorKind::NotSupported);
    EXPECT_NE(std::strstr(refused.error().subject, why), nullptr) << refused.error().text();
    EXPECT_EQ(own.backing(0), first) << "nothing before it was exchanged";
  };
  const auto pinned = [](std::uint8_t why) {
    return [why](Program& program, OwnVirtualMemory& own) {
      program.chunks->pin(own.address() + granule, 1, why);
    };
  };
  is_refused(pinned(pin::multicast), "multicast");
  is_refused(pinned(pin::dma_buf), "dma-buf");
  is_refused(pinned(pin::peer_tokens), "P2P tokens");
  is_refused(
      [](Program& program, OwnVirtualMemory& own) {
        const CUmemAccessDesc host{{CU_MEM_LOCATION_TYPE_HOST, {0}},
                                   CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        program.chunks->set_access(own.address() + granule, granule, {&host, 1});
      },
      "the host may access it");
}

TEST_F(ChunkExchangeTest, RefusesDuringACapture) {
  Program program{driver(), {}};
  OwnVirtualMemory own{program, 8 * MiB};
  own.add(0, granule);
  const auto capture = program.captures.began();
  const auto refused = exchange(program, own.address());
  program.captures.never_began(capture);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::NotSupported);
  EXPECT_FALSE(is_exportable(own, 0));
  EXPECT_TRUE(exchange(program, own.address()).ok());
}

TEST_F(ChunkExchangeTest, GivesUpIfWorkDoesNotEndInTime) {
  Program program{driver(), {}};
  OwnVirtualMemory own{program, 8 * MiB};
  own.add(0, granule);
  EndlessWork work{driver(), program};
  const auto refused = exchange(program, own.address(), Duration{50'000});
  EXPECT_FALSE(is_exportable(own, 0));
  work.let_end(driver());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::TimedOut) << refused.error().text();
  EXPECT_TRUE(exchange(program, own.address()).ok());
  work.end(driver());
}

TEST_F(ChunkExchangeTest, LosesNothingWhicheverCallFails) {
  const std::string held_before = held_by_the_process();
  for (const CUresult fault : {CUDA_ERROR_UNKNOWN, CUDA_ERROR_OUT_OF_MEMORY}) {
    bool untouched = false;
    for (std::uint64_t number = 1; !untouched && number < most_calls_of_a_scenario; ++number) {
      FaultyDriver faulty{driver()};
      Program program{faulty, {}};
      {
        OwnVirtualMemory own{program, 32 * MiB};
        const auto aliased = own.add(0, granule);
        own.map(8 * granule, granule, aliased);
        own.allow(8 * granule, granule, CU_MEM_ACCESS_FLAGS_PROT_READ);
        own.release(own.add(granule, 2 * granule));
        fill_pattern(own.address(), 3 * granule, 7);
        const auto first = own.backing(0);
        const auto second = own.backing(granule);
        faulty.fail_call(number, fault);
        const auto made = exchange(program, own.address());
        SCOPED_TRACE("driver call " + std::to_string(number) + " (" + faulty.last_failed() +
                     ") fails with " + name_of(fault));
        untouched = faulty.faults() == 0;
        faulty.stop_failing();
        expect_pattern(own.address(), 3 * granule, 7);
        expect_pattern(own.address() + 8 * granule, granule, 7);
        EXPECT_EQ(own.access(0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        EXPECT_EQ(own.access(8 * granule), CU_MEM_ACCESS_FLAGS_PROT_READ);
        EXPECT_EQ(own.backing(0), own.backing(8 * granule));
        EXPECT_EQ(program.chunks->handle_of(aliased), own.backing(0));
        if (made.ok()) {
          EXPECT_TRUE(is_exportable(own, 0));
          EXPECT_TRUE(is_exportable(own, granule));
        } else {
          EXPECT_FALSE(untouched) << made.error().text();
          EXPECT_EQ(own.backing(granule), second) << "the last one was not exchanged";
          EXPECT_EQ(is_exportable(own, 0), own.backing(0) != first);
        }
        // And it can still be made.
        ASSERT_DONE(exchange(program, own.address()));
        expect_pattern(own.address(), 3 * granule, 7);
        EXPECT_TRUE(is_exportable(own, granule));
      }
      EXPECT_EQ(retry_releases(), 0u);
      EXPECT_TRUE(program.chunks->is_empty());
      if (HasFailure()) return;
    }
    EXPECT_TRUE(untouched);
  }
  EXPECT_EQ(held_by_the_process(), held_before);
}

// If the driver refuses to map either chunk, nobody may touch the memory.
TEST_F(ChunkExchangeTest, TheProgramWaitsWhileTheDriverMapsNeitherChunk) {
  constexpr std::uint64_t many = 100;  // more than any undo makes
  bool has_waited = false;
  bool untouched = false;
  for (std::uint64_t number = 1; !untouched && number < most_calls_of_a_scenario; ++number) {
    SCOPED_TRACE("from driver call " + std::to_string(number) + " on all fail");
    FaultyDriver faulty{driver()};
    Program program{faulty, {}};
    {
      OwnVirtualMemory own{program, 8 * MiB};
      own.add(0, granule);
      fill_pattern(own.address(), granule, 1);
      faulty.fail_from(number, CUDA_ERROR_UNKNOWN);
      std::atomic<bool> is_over{false};
      std::thread repairs{[&] {
        while (!is_over && faulty.faults() < many) std::this_thread::yield();
        if (is_over) return;
        EXPECT_TRUE(program.calls.is_shut());
        has_waited = true;
        faulty.stop_failing();
      }};
      (void)exchange(program, own.address());
      is_over = true;
      repairs.join();
      untouched = !has_waited && faulty.faults() == 0;
      faulty.stop_failing();
      EXPECT_EQ(retry_releases(), 0u);
      expect_pattern(own.address(), granule, 1);
    }
    if (HasFailure()) return;
    if (has_waited) break;
  }
  EXPECT_TRUE(has_waited);
}

}  // namespace
}  // namespace cuvmm::test
