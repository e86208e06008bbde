// SPDX-License-Identifier: Apache-2.0
// Memory as the hooks use it: what cuvmm serves, what is refused, and what is left to the driver.
#include <vector>

#include "alloc/pointer_answers.hpp"
#include "alloc_memory_world.hpp"
#include "driver/current_context.hpp"
#include "support/kernels.hpp"

namespace cuvmm::test {
namespace {

constexpr Size large = 8 * MiB;

TEST_F(MemoryTest, IsFoundUntilItIsFreed) {
  const CUdeviceptr address = given(large);
  const auto facts = memory().find(address + large - 1);
  ASSERT_TRUE(facts);
  EXPECT_EQ(facts->address, address);
  EXPECT_EQ(facts->asked, large);
  EXPECT_EQ(memory().free(address), Answer{CUDA_SUCCESS});
  EXPECT_FALSE(memory().find(address));
}

TEST_F(MemoryTest, OfEverySizeIsUsable) {
  for (const Size size : {Size{1}, 1000 * Size{1}, 64 * KiB, 100 * KiB, 2 * MiB, 5 * MiB + 1}) {
    const CUdeviceptr address = given(size);
    EXPECT_CUDA(driver().cuMemsetD8(address, 7, size));
    submission_epoch.leave();
    EXPECT_EQ(memory().free(address), Answer{CUDA_SUCCESS});
  }
  EXPECT_EQ(memory().violation(), std::nullopt);
}

TEST_F(MemoryTest, LeavesForeignAddressesToTheDriver) {
  CUdeviceptr address = 0;
  EXPECT_EQ(memory().allocate(&address, 0), std::nullopt);
  EXPECT_EQ(memory().allocate(nullptr, large), std::nullopt);
  EXPECT_EQ(memory().free(0), std::nullopt);
  EXPECT_EQ(memory().free(0x1234), std::nullopt);
  EXPECT_EQ(memory().free_ordered(0x1234, StreamName{}), std::nullopt);
}

TEST_F(MemoryTest, BeyondTheDeviceIsRefusedAtOnce) {
  CUdeviceptr address = 0;
  EXPECT_EQ(memory().allocate(&address, 1024 * TiB), Answer{CUDA_ERROR_OUT_OF_MEMORY});
  EXPECT_EQ(memory().allocate_ordered(&address, 1024 * TiB, StreamName{}),
            Answer{CUDA_ERROR_OUT_OF_MEMORY});
  EXPECT_EQ(address, 0U) << "out-parameters are written only on success";
}

TEST_F(MemoryTest, KeepsTheLimitAndSaysSo) {
  begin({.limit = SizeLimit::of_bytes(64 * MiB)});
  const cuvmm::MemoryInfo at_first = memory().info({.free = 4 * GiB, .total = 8 * GiB});
  EXPECT_EQ(at_first.total, 64 * MiB);
  const CUdeviceptr one = given(40 * MiB);
  CUdeviceptr two = 0;
  EXPECT_EQ(memory().allocate(&two, 40 * MiB), Answer{CUDA_ERROR_OUT_OF_MEMORY});
  const cuvmm::MemoryInfo held = memory().info({.free = 4 * GiB, .total = 8 * GiB});
  EXPECT_LE(held.free + 40 * MiB, held.total);
  EXPECT_EQ(memory().free(one), Answer{CUDA_SUCCESS});
  two = given(40 * MiB);
  EXPECT_EQ(memory().free(two), Answer{CUDA_SUCCESS});
}

TEST_F(MemoryTest, TheLimitCountsNativeAllocations) {
  begin({.limit = SizeLimit::of_bytes(64 * MiB)});
  const NativeMemory::Name array{NativeMemory::Kind::Array, 1};
  memory().native().took(array, 40 * MiB);
  const auto told = memory().info({.free = 4 * GiB, .total = 8 * GiB});
  EXPECT_EQ(told.total, 64 * MiB);
  EXPECT_EQ(told.free, 24 * MiB);
  CUdeviceptr refused = 0;
  EXPECT_EQ(memory().allocate(&refused, 32 * MiB), Answer{CUDA_ERROR_OUT_OF_MEMORY});
  const CUdeviceptr small = given(16 * MiB);
  memory().native().gives_back(array);
  const CUdeviceptr more = given(40 * MiB);
  EXPECT_EQ(memory().free(small), Answer{CUDA_SUCCESS});
  EXPECT_EQ(memory().free(more), Answer{CUDA_SUCCESS});
}

TEST_F(MemoryTest, CachedMemoryMakesWayForNativeAllocations) {
  begin({.limit = SizeLimit::of_bytes(64 * MiB)});
  EXPECT_EQ(memory().free(given(48 * MiB)), Answer{CUDA_SUCCESS});
  EXPECT_GE(memory().counters(0).physical_held(), 48 * MiB);
  memory().native().took({NativeMemory::Kind::Address, 1}, 40 * MiB);
  EXPECT_LE(memory().counters(0).physical_held(), 24 * MiB);
}

TEST_F(MemoryTest, OneKindOfMemoryMakesRoomForTheOther) {
  begin({.limit = SizeLimit::of_bytes(64 * MiB)});
  const CUdeviceptr ordered = given_ordered(48 * MiB);
  EXPECT_EQ(memory().free_ordered(ordered, StreamName{}), Answer{CUDA_SUCCESS});
  EXPECT_CUDA(driver().cuStreamSynchronize(nullptr));
  const CUdeviceptr blocking = given(48 * MiB);
  EXPECT_EQ(memory().free(blocking), Answer{CUDA_SUCCESS});
  const CUdeviceptr again = given_ordered(48 * MiB);
  EXPECT_EQ(memory().free_ordered(again, StreamName{}), Answer{CUDA_SUCCESS});
}

TEST_F(MemoryTest, CachedMemoryIsReleasedWhenTheDriverHasNone) {
  const CUdeviceptr address = given(large);
  EXPECT_FALSE(memory().make_room()) << "all of it is held";
  EXPECT_EQ(memory().free(address), Answer{CUDA_SUCCESS});
  EXPECT_TRUE(memory().make_room());
  EXPECT_FALSE(memory().make_room());
}

TEST_F(MemoryTest, StreamOrderedFreesAreReleasedWithoutAnotherRequest) {
  const CUdeviceptr address = given(large);
  EXPECT_CUDA(driver().cuMemsetD8Async(address, 7, large, nullptr));
  EXPECT_EQ(memory().free_ordered(address, StreamName{}), Answer{CUDA_SUCCESS});
  EXPECT_CUDA(synchronize());
  EXPECT_TRUE(memory().make_room());
  EXPECT_EQ(memory().counters(0).physical_held(), 0U);
}

TEST_F(MemoryTest, MayBePinnedAndUnpinnedRepeatedly) {
  const CUdeviceptr address = given(large);
  memory().held().set_sync_memops(address, true);
  memory().held().pin(address, pin::dma_buf);
  EXPECT_EQ(memory().violation(), std::nullopt);
  memory().held().set_sync_memops(address, false);
  EXPECT_EQ(memory().violation(), std::nullopt);
  EXPECT_EQ(memory().free(address), Answer{CUDA_SUCCESS});
  EXPECT_EQ(memory().violation(), std::nullopt);
}

TEST_F(MemoryTest, CountsRequestedAndPhysicalBytes) {
  const CUdeviceptr blocking = given(large + 1);
  const CUdeviceptr ordered = given_ordered(1000);
  const MemoryCounters counters = memory().counters(0);
  EXPECT_EQ(counters.requested_live, large + 1 + 1000);
  EXPECT_GE(counters.physical_held(), counters.requested_live);
  EXPECT_EQ(memory().free(blocking), Answer{CUDA_SUCCESS});
  EXPECT_EQ(memory().free_ordered(ordered, StreamName{}), Answer{CUDA_SUCCESS});
  EXPECT_EQ(memory().counters(0).requested_live, 0U);
}

TEST_F(MemoryTest, NothingLiveMovesWhileWorkRunsThatCouldTouchIt) {
  begin({.limit = SizeLimit::of_bytes(32 * MiB), .wait = Duration{20'000}});
  std::vector<CUdeviceptr> blocks;
  CUdeviceptr block = 0;
  while (memory().allocate(&block, 512 * KiB) == CUDA_SUCCESS) blocks.push_back(block);
  ASSERT_GE(blocks.size(), 60U);
  for (std::size_t i = 1; i < blocks.size(); i += 2) {
    ASSERT_EQ(memory().free(blocks[i]), Answer{CUDA_SUCCESS});
  }
  const GivenStream stream;
  ASSERT_NE(clock->table().find(StreamName{.handle = stream}), nullptr);
  CUdeviceptr whole = 0;
  {
    SlowWork work{kernels(), stream};
    submission_epoch.leave();
    EXPECT_EQ(memory().allocate(&whole, 12 * MiB), Answer{CUDA_ERROR_OUT_OF_MEMORY});
  }
  EXPECT_CUDA(synchronize());
  EXPECT_EQ(memory().allocate(&whole, 12 * MiB), Answer{CUDA_SUCCESS});
  EXPECT_EQ(memory().violation(), std::nullopt);
  end();
}

TEST_F(MemoryTest, MakesDoWithFewerAddressesIfThereAreNotSoMany) {
  const auto reserved = [&] {
    given_ordered(1000);
    Size addresses = 0;
    for (const RegionUse& region : memory().holdings().regions(0)) addresses += region.reserved;
    return addresses;
  };
  const Size usual = reserved();
  begin({});
  faulty.fail_call(Call::cuMemAddressReserve, 2, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_LT(reserved(), usual);
  EXPECT_EQ(faulty.faults(), 1U);
}

TEST_F(MemoryTest, PointerQueriesDescribeTheAllocationNotItsBacking) {
  const CUdeviceptr address = given(large + 1);
  const auto ask = [&](CUpointer_attribute attribute) {
    const auto answer =
        pointer_answer(memory(), *memory().find(address + 4 * MiB), address + 4 * MiB, attribute);
    return answer ? answer->value : 0;
  };
  EXPECT_EQ(ask(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR), address);
  EXPECT_EQ(ask(CU_POINTER_ATTRIBUTE_RANGE_SIZE), large + 1);
  EXPECT_EQ(ask(CU_POINTER_ATTRIBUTE_CONTEXT),
            reinterpret_cast<std::uint64_t>(current_context(driver())));
  const std::uint64_t id = ask(CU_POINTER_ATTRIBUTE_BUFFER_ID);
  EXPECT_EQ(memory().free(address), Answer{CUDA_SUCCESS});
  const CUdeviceptr again = given(large + 1);
  EXPECT_NE(
      pointer_answer(memory(), *memory().find(again), again, CU_POINTER_ATTRIBUTE_BUFFER_ID)->value,
      id);
  EXPECT_EQ(memory().free(again), Answer{CUDA_SUCCESS});
}

}  // namespace
}  // namespace cuvmm::test
