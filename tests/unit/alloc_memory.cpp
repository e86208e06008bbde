// SPDX-License-Identifier: Apache-2.0
// Memory as the hooks use it: what is ours to serve, what is refused, and what is left to the
// driver.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "alloc/memory.hpp"
#include "alloc/pointer_answers.hpp"
#include "driver/current_context.hpp"
#include "support/driver_under_test.hpp"
#include "support/faulty_driver.hpp"
#include "support/kernels.hpp"

namespace cuvmm::test {
namespace {

constexpr Size large = 8 * MiB;

class MemoryTest : public DriverContract {
 protected:
  void SetUp() override {
    DriverContract::SetUp();
    begin({});
  }
  void TearDown() override {
    end();
    DriverContract::TearDown();
  }

  void end() {
    memory_.reset();
    clock.reset();
  }
  void begin(const MemorySettings& settings) {
    end();
    clock.emplace(faulty.driver(), captures);
    memory_.emplace(Memory::Surroundings{faulty.driver(), *clock, captures, gate, work_note,
                                         [this] { return sees_everything; }},
                    settings);
  }
  Memory& memory() { return *memory_; }

  CUdeviceptr given(Size size) {
    CUdeviceptr address = 0;
    EXPECT_EQ(memory().allocate(&address, size), Answer{CUDA_SUCCESS});
    return address;
  }
  CUdeviceptr given_ordered(Size size) {
    CUdeviceptr address = 0;
    EXPECT_EQ(memory().allocate_ordered(&address, size, StreamName{}), Answer{CUDA_SUCCESS});
    return address;
  }

  FaultyDriver faulty{driver()};
  Captures captures;
  Gate gate;
  WorkNote work_note;
  bool sees_everything = true;
  std::optional<StreamClock> clock;

 private:
  std::optional<Memory> memory_;
};

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
    work_note.leave();
    EXPECT_EQ(memory().free(address), Answer{CUDA_SUCCESS});
  }
  EXPECT_EQ(memory().complaint(), std::nullopt);
}

TEST_F(MemoryTest, WhatIsNotOursIsTheDriversBusiness) {
  CUdeviceptr address = 0;
  EXPECT_EQ(memory().allocate(&address, 0), std::nullopt);
  EXPECT_EQ(memory().allocate(nullptr, large), std::nullopt);
  EXPECT_EQ(memory().free(0), std::nullopt);
  EXPECT_EQ(memory().free(0x1234), std::nullopt);
  EXPECT_EQ(memory().free_ordered(0x1234, StreamName{}), std::nullopt);
}

TEST_F(MemoryTest, AFreeOfAnInnerOrFreedAddressIsRefused) {
  const CUdeviceptr address = given(large);
  EXPECT_EQ(memory().free(address + 512), Answer{CUDA_ERROR_INVALID_VALUE});
  EXPECT_EQ(memory().free(address), Answer{CUDA_SUCCESS});
  EXPECT_EQ(memory().free(address), std::nullopt) << "the driver refuses what it never gave";
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
  const MemoryInfo at_first = memory().info({.free = 4 * GiB, .total = 8 * GiB});
  EXPECT_EQ(at_first.total, 64 * MiB);
  const CUdeviceptr one = given(40 * MiB);
  CUdeviceptr two = 0;
  EXPECT_EQ(memory().allocate(&two, 40 * MiB), Answer{CUDA_ERROR_OUT_OF_MEMORY});
  const MemoryInfo held = memory().info({.free = 4 * GiB, .total = 8 * GiB});
  EXPECT_LE(held.free + 40 * MiB, held.total);
  EXPECT_EQ(memory().free(one), Answer{CUDA_SUCCESS});
  two = given(40 * MiB);
  EXPECT_EQ(memory().free(two), Answer{CUDA_SUCCESS});
}

TEST_F(MemoryTest, TheLimitCountsWhatTheProgramTakesOfTheDriver) {
  begin({.limit = SizeLimit::of_bytes(64 * MiB)});
  const NativeMemory::Name array{NativeMemory::Kind::Array, 1};
  memory().took_natively(array, 40 * MiB);
  const auto told = memory().info({.free = 4 * GiB, .total = 8 * GiB});
  EXPECT_EQ(told.total, 64 * MiB);
  EXPECT_EQ(told.free, 24 * MiB);
  CUdeviceptr refused = 0;
  EXPECT_EQ(memory().allocate(&refused, 32 * MiB), Answer{CUDA_ERROR_OUT_OF_MEMORY});
  const CUdeviceptr small = given(16 * MiB);
  memory().gives_back_natively(array);
  const CUdeviceptr more = given(40 * MiB);
  EXPECT_EQ(memory().free(small), Answer{CUDA_SUCCESS});
  EXPECT_EQ(memory().free(more), Answer{CUDA_SUCCESS});
}

TEST_F(MemoryTest, WhatIsKeptMakesWayForWhatTheProgramTakesOfTheDriver) {
  begin({.limit = SizeLimit::of_bytes(64 * MiB)});
  EXPECT_EQ(memory().free(given(48 * MiB)), Answer{CUDA_SUCCESS});
  EXPECT_GE(memory().counters(0).physical_held(), 48 * MiB);
  memory().took_natively({NativeMemory::Kind::Address, 1}, 40 * MiB);
  EXPECT_LE(memory().counters(0).physical_held(), 24 * MiB);
}

TEST_F(MemoryTest, KeepsNoMoreThanItIsToldTo) {
  begin({.cache = SizeLimit::of_bytes(8 * MiB)});
  CUmemoryPool standard = nullptr;
  GIVEN(driver().cuDeviceGetDefaultMemPool(&standard, 0));
  const CUdeviceptr ordered = given_ordered(32 * MiB);
  EXPECT_EQ(memory().free_ordered(ordered, StreamName{}), Answer{CUDA_SUCCESS});
  EXPECT_CUDA(synchronize());
  EXPECT_GE(memory().counters(0).physical_held(), 32 * MiB) << "until it is told to trim";
  memory().pool(standard)->trim(0);
  EXPECT_LE(memory().counters(0).physical_held(), 8 * MiB);
}

TEST_F(MemoryTest, AChunkOfTheProgramsCountsUntilNobodyRefersToIt) {
  begin({.limit = SizeLimit::of_bytes(64 * MiB)});
  const NativeMemory::Name chunk{NativeMemory::Kind::Chunk, 7};
  memory().took_natively(chunk, 8 * MiB, 0);
  memory().refers_natively_to(chunk);
  memory().gives_back_natively(chunk);
  EXPECT_EQ(memory().counters(0).native, 8 * MiB);
  memory().gives_back_natively(chunk);
  EXPECT_EQ(memory().counters(0).native, 0U);
  memory().gives_back_natively(chunk);
  EXPECT_EQ(memory().counters(0).native, 0U) << "given back once";
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

TEST_F(MemoryTest, WhatIsKeptIsGivenBackWhenTheDriverHasNone) {
  const CUdeviceptr address = given(large);
  EXPECT_FALSE(memory().make_room()) << "all of it is held";
  EXPECT_EQ(memory().free(address), Answer{CUDA_SUCCESS});
  EXPECT_TRUE(memory().make_room());
  EXPECT_FALSE(memory().make_room());
}

TEST_F(MemoryTest, WhatAStreamFreedIsGivenBackThoughNobodyAsksForItAgain) {
  const CUdeviceptr address = given(large);
  EXPECT_CUDA(driver().cuMemsetD8Async(address, 7, large, nullptr));
  EXPECT_EQ(memory().free_ordered(address, StreamName{}), Answer{CUDA_SUCCESS});
  EXPECT_CUDA(synchronize());
  EXPECT_TRUE(memory().make_room());
  EXPECT_EQ(memory().counters(0).physical_held(), 0U);
}

TEST_F(MemoryTest, IsPinnedAndUnpinnedAsOftenAsTheProgramLikes) {
  const CUdeviceptr address = given(large);
  memory().set_sync_memops(address, true);
  memory().pin(address, pin::dma_buf);
  EXPECT_EQ(memory().complaint(), std::nullopt);
  memory().set_sync_memops(address, false);
  EXPECT_EQ(memory().complaint(), std::nullopt);
  EXPECT_EQ(memory().free(address), Answer{CUDA_SUCCESS});
  EXPECT_EQ(memory().complaint(), std::nullopt);
}

TEST_F(MemoryTest, CountsWhatTheProgramHoldsAndWhatItTakes) {
  const CUdeviceptr blocking = given(large + 1);
  const CUdeviceptr ordered = given_ordered(1000);
  const MemoryCounters counters = memory().counters(0);
  EXPECT_EQ(counters.requested_live, large + 1 + 1000);
  EXPECT_GE(counters.physical_held(), counters.requested_live);
  EXPECT_EQ(memory().free(blocking), Answer{CUDA_SUCCESS});
  EXPECT_EQ(memory().free_ordered(ordered, StreamName{}), Answer{CUDA_SUCCESS});
  EXPECT_EQ(memory().counters(0).requested_live, 0U);
}

// A capture that began a moment ago must not be broken by a wait that the driver's free has not.
TEST_F(MemoryTest, OnceThereWasACaptureAFreeWaitsAsTheDriversDoes) {
  const CUdeviceptr address = given(large);
  captures.began();
  captures.ended();
  work_note.leave();
  const std::uint64_t synchronised = faulty.count_of("cuCtxSynchronize");
  const std::uint64_t freed = faulty.count_of("cuMemFree");
  EXPECT_EQ(memory().free(address), Answer{CUDA_SUCCESS});
  EXPECT_EQ(faulty.count_of("cuCtxSynchronize"), synchronised);
  EXPECT_EQ(faulty.count_of("cuMemFree"), freed + 1);
}

TEST_F(MemoryTest, AFreeOnAFullCardDoesNotFailForWantOfMemory) {
  const CUdeviceptr address = given(large);
  captures.began();
  captures.ended();
  work_note.leave();
  faulty.fail_from(1, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(memory().free(address), Answer{CUDA_SUCCESS});
  faulty.stop_failing();
  EXPECT_FALSE(memory().find(address));
}

// The asking stream waits on the device for what the other still does; this thread goes on. A pool
// that may not add such an order has its host wait, in vain here.
TEST_F(MemoryTest, UnderPressureOneStreamFollowsAnother) {
  for (const bool may_follow : {true, false}) {
    begin({.limit = SizeLimit::of_bytes(64 * MiB), .wait = Duration{20'000}});
    CUmemoryPool standard = nullptr;
    GIVEN(driver().cuDeviceGetDefaultMemPool(&standard, 0));
    memory().pool(standard)->order().add_dependencies(may_follow);
    const GivenStream first;
    const GivenStream second;
    const StreamName one{.handle = first};
    const StreamName other{.handle = second};
    CUdeviceptr address = 0;
    ASSERT_EQ(memory().allocate_ordered(&address, 48 * MiB, one), Answer{CUDA_SUCCESS});
    {
      SlowWork work{kernels(), first};
      ASSERT_EQ(memory().free_ordered(address, one), Answer{CUDA_SUCCESS});
      CUdeviceptr next = 0;
      const Answer answer = memory().allocate_ordered(&next, 48 * MiB, other);
      EXPECT_EQ(answer, Answer{may_follow ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY});
      if (may_follow) {
        EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(second));
        EXPECT_EQ(memory().free_ordered(next, other), Answer{CUDA_SUCCESS});
      }
    }
    EXPECT_CUDA(synchronize());
    EXPECT_EQ(memory().complaint(), std::nullopt);
    end();
  }
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
    work_note.leave();
    EXPECT_EQ(memory().allocate(&whole, 12 * MiB), Answer{CUDA_ERROR_OUT_OF_MEMORY});
  }
  EXPECT_CUDA(synchronize());
  EXPECT_EQ(memory().allocate(&whole, 12 * MiB), Answer{CUDA_SUCCESS});
  EXPECT_EQ(memory().complaint(), std::nullopt);
  end();
}

TEST_F(MemoryTest, OfAContextThatEndedIsNoAllocationAnyMore) {
  CUdeviceptr address = 0;
  {
    OwnContext own;
    address = given(large);
    const CUcontext handle = own.get();
    GIVEN(own.destroy());
    memory().context_ended(handle);
  }
  EXPECT_FALSE(memory().find(address));
  EXPECT_EQ(memory().free(address), std::nullopt);
  EXPECT_EQ(memory().complaint(), std::nullopt);
  EXPECT_EQ(memory().counters(0).requested_live, 0U);
  memory().make_room();
  EXPECT_EQ(memory().counters(0).physical_held(), 0U) << "all of it went with the context";
}

TEST_F(MemoryTest, PoolsAndContextsThatComeAndGoLeaveNoAddressesBehind) {
  const auto use_and_end_both = [&] {
    OwnContext own;
    const CUcontext context = own.get();
    memory().context_began(context);
    given(large);
    given(1000);
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    CUmemoryPool pool = nullptr;
    GIVEN(driver().cuMemPoolCreate(&pool, &properties));
    memory().pool_created(pool, properties);
    CUdeviceptr ordered = 0;
    EXPECT_EQ(memory().allocate_ordered(&ordered, large, pool, StreamName{}), Answer{CUDA_SUCCESS});
    EXPECT_EQ(memory().free_ordered(ordered, StreamName{}), Answer{CUDA_SUCCESS});
    GIVEN(synchronize());
    memory().pool_ended(pool);
    GIVEN(driver().cuMemPoolDestroy(pool));
    GIVEN(own.destroy());
    memory().context_ended(context);
  };
  use_and_end_both();
  const Size reserved = reserved_addresses();
  for (int round = 0; round < 20; ++round) use_and_end_both();
  EXPECT_EQ(reserved_addresses(), reserved);
}

TEST_F(MemoryTest, AHandleThatEndedIsTheDriversUntilItBeginsAgain) {
  const CUcontext current = current_context(driver());
  memory().context_ended(current);
  CUdeviceptr address = 0;
  EXPECT_EQ(memory().allocate(&address, large), std::nullopt);
  EXPECT_EQ(memory().allocate_ordered(&address, large, StreamName{}), std::nullopt);
  memory().context_began(current);
  EXPECT_EQ(memory().free(given(large)), Answer{CUDA_SUCCESS});
}

TEST_F(MemoryTest, AfterALostContextEverythingNewIsAskedOfTheDriver) {
  const CUdeviceptr address = given(large);
  memory().context_is_lost();
  CUdeviceptr more = 0;
  EXPECT_EQ(memory().allocate(&more, large), std::nullopt);
  EXPECT_EQ(memory().free(address), Answer{CUDA_SUCCESS}) << "what is ours stays ours";
}

TEST_F(MemoryTest, AWaitThatFailsLeavesTheAllocationHeld) {
  const CUdeviceptr address = given(large);
  work_note.leave();
  faulty.fail_call(Call::cuCtxSynchronize, 1, CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(memory().free(address), Answer{CUDA_ERROR_LAUNCH_FAILED});
  EXPECT_TRUE(memory().find(address));
  faulty.stop_failing();
  EXPECT_EQ(memory().free(address), Answer{CUDA_SUCCESS});
}

TEST_F(MemoryTest, NothingIsWaitedForTwice) {
  const auto waits = [this](CUdeviceptr address) {
    const std::uint64_t before = faulty.count_of("cuCtxSynchronize");
    EXPECT_EQ(memory().free(address), Answer{CUDA_SUCCESS});
    return faulty.count_of("cuCtxSynchronize") != before;
  };
  const CUdeviceptr first = given(large);
  const CUdeviceptr second = given(large);
  const CUdeviceptr third = given(large);
  work_note.leave();
  EXPECT_TRUE(waits(first));
  EXPECT_FALSE(waits(second));
  sees_everything = false;
  EXPECT_TRUE(waits(third)) << "there may be work that nobody told us of";
}

TEST_F(MemoryTest, AnswersForTheAllocationAndNotForWhatLiesBehindIt) {
  const CUdeviceptr address = given(large + 1);
  const auto ask = [&](CUpointer_attribute attribute) {
    const auto answer = pointer_answer(memory(), address + 4 * MiB, attribute);
    return answer ? answer->value : 0;
  };
  EXPECT_EQ(ask(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR), address);
  EXPECT_EQ(ask(CU_POINTER_ATTRIBUTE_RANGE_SIZE), large + 1);
  EXPECT_EQ(ask(CU_POINTER_ATTRIBUTE_CONTEXT),
            reinterpret_cast<std::uint64_t>(current_context(driver())));
  const std::uint64_t id = ask(CU_POINTER_ATTRIBUTE_BUFFER_ID);
  EXPECT_EQ(memory().free(address), Answer{CUDA_SUCCESS});
  const CUdeviceptr again = given(large + 1);
  EXPECT_NE(pointer_answer(memory(), again, CU_POINTER_ATTRIBUTE_BUFFER_ID)->value, id);
  EXPECT_EQ(memory().free(again), Answer{CUDA_SUCCESS});
}

}  // namespace
}  // namespace cuvmm::test
