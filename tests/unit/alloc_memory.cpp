// SPDX-License-Identifier: Apache-2.0
// Memory as the hooks use it: what is ours to serve, what is refused, and what is left to the
// driver.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "alloc/memory.hpp"
#include "alloc/pointer_answers.hpp"
#include "driver/current_context.hpp"
#include "support/driver_under_test.hpp"
#include "support/faulty_driver.hpp"

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
    memory_.reset();
    clock.reset();
    DriverContract::TearDown();
  }

  void begin(const MemorySettings& settings) {
    memory_.reset();
    clock.reset();
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
