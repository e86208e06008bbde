// SPDX-License-Identifier: Apache-2.0
// Memory of contexts and pools: how it ends with them, what a pool keeps, and which orders it
// follows.
#include <unistd.h>

#include <functional>
#include <semaphore>
#include <thread>
#include <utility>

#include "alloc_memory_world.hpp"
#include "driver/current_context.hpp"
#include "support/kernels.hpp"

namespace cuvmm::test {
namespace {

constexpr Size large = 8 * MiB;

TEST_F(MemoryTest, KeepsNoMoreThanItIsToldTo) {
  begin({.cache = SizeLimit::of_bytes(8 * MiB)});
  CUmemoryPool standard = nullptr;
  GIVEN(driver().cuDeviceGetDefaultMemPool(&standard, 0));
  const CUdeviceptr ordered = given_ordered(32 * MiB);
  EXPECT_EQ(memory().free_ordered(ordered, StreamName{}), Answer{CUDA_SUCCESS});
  EXPECT_CUDA(synchronize());
  EXPECT_GE(memory().counters(0).physical_held(), 32 * MiB) << "until it is told to trim";
  memory().pools().serve(standard)->trim(0);
  EXPECT_LE(memory().counters(0).physical_held(), 8 * MiB);
}

// The attribute restricts the pool's own reuse only.
TEST_F(MemoryTest, WithoutOpportunisticReuseAPoolStillReleasesCompletedFrees) {
  CUmemoryPool standard = nullptr;
  GIVEN(driver().cuDeviceGetDefaultMemPool(&standard, 0));
  memory().pools().serve(standard)->order().allow_opportunistic(false);
  const GivenStream stream;
  const StreamName name{.handle = stream};
  CUdeviceptr address = 0;
  ASSERT_EQ(memory().allocate_ordered(&address, 32 * MiB, name), Answer{CUDA_SUCCESS});
  {
    SlowWork work{kernels(), stream};
    ASSERT_EQ(memory().free_ordered(address, name), Answer{CUDA_SUCCESS});
    memory().make_room();
    EXPECT_GE(memory().counters(0).physical_held(), 32 * MiB) << "work may still use it";
  }
  memory().make_room();
  EXPECT_EQ(memory().counters(0).physical_held(), 0U);
}

// The asking stream waits on the device for the other stream's pending work; this thread does not
// block. If the pool may not add such a dependency, the host waits instead, in vain here.
TEST_F(MemoryTest, UnderPressureOneStreamFollowsAnother) {
  for (const bool may_follow : {true, false}) {
    begin({.limit = SizeLimit::of_bytes(64 * MiB), .wait = Duration{1'000'000}});
    CUmemoryPool standard = nullptr;
    GIVEN(driver().cuDeviceGetDefaultMemPool(&standard, 0));
    memory().pools().serve(standard)->order().add_dependencies(may_follow);
    const GivenStream first;
    const GivenStream second;
    const StreamName one{.handle = first};
    const StreamName other{.handle = second};
    CUdeviceptr address = 0;
    // Memory has been short before, and both streams have freed some.
    for (const StreamName& name : {one, other}) {
      ASSERT_EQ(memory().allocate_ordered(&address, 48 * MiB, name), Answer{CUDA_SUCCESS});
      ASSERT_EQ(memory().free_ordered(address, name), Answer{CUDA_SUCCESS});
    }
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
    EXPECT_EQ(memory().violation(), std::nullopt);
    end();
  }
}

// The call may need memory of that device, whichever is current.
TEST_F(MemoryTest, MakesRoomOnDevicesThatAreNotCurrent) {
  NEEDS_DEVICES(2);
  {
    const PrimaryContext there{1};
    EXPECT_EQ(memory().free(given(large)), Answer{CUDA_SUCCESS});
  }
  ASSERT_GE(memory().counters(1).physical_held(), large);
  ASSERT_CUDA(driver().cuCtxSetCurrent(nullptr));
  EXPECT_TRUE(memory().make_room());
  EXPECT_EQ(memory().counters(1).physical_held(), 0U);
  EXPECT_FALSE(memory().make_room()) << "there is nothing left";
  ASSERT_CUDA(driver().cuCtxSetCurrent(primary()));
}

TEST_F(MemoryTest, OfAnEndedContextIsForgotten) {
  CUdeviceptr address = 0;
  {
    OwnContext own;
    address = given(large);
    const CUcontext handle = own.get();
    GIVEN(own.destroy());
    memory().contexts().ended(handle);
  }
  EXPECT_FALSE(memory().find(address));
  EXPECT_EQ(memory().free(address), std::nullopt);
  EXPECT_EQ(memory().violation(), std::nullopt);
  EXPECT_EQ(memory().counters(0).requested_live, 0U);
  memory().make_room();
  EXPECT_EQ(memory().counters(0).physical_held(), 0U) << "all of it went with the context";
}

// A thread that may have just found memory, without a lock.
class AnotherThreadInside {
 public:
  AnotherThreadInside() { is_inside_.acquire(); }
  ~AnotherThreadInside() { leave(); }
  AnotherThreadInside(const AnotherThreadInside&) = delete;
  AnotherThreadInside& operator=(const AnotherThreadInside&) = delete;
  void leave() {
    if (!thread_.joinable()) return;
    may_leave_.release();
    thread_.join();
  }

 private:
  CallBarrier questions_{CallBarrier::Of::Questions};
  std::binary_semaphore is_inside_{0};
  std::binary_semaphore may_leave_{0};
  std::jthread thread_{[this] {
    const CallBarrier::Pass pass{questions_};
    is_inside_.release();
    may_leave_.acquire();
  }};
};

// The free has found the memory, and waits for the context's work.
TEST_F(MemoryTest, AContextMayEndWhileAFreeOfItsMemoryIsUnderWay) {
  const AnotherThreadInside frees;
  OwnContext own;
  const CUcontext handle = own.get();
  const auto small = memory().held().find_start(given(1000));
  const auto window = memory().held().find_start(given(large));
  ASSERT_TRUE(small && window);
  ContextMemory& owner = *small->facts.context_memory();
  GIVEN(own.destroy());
  memory().contexts().ended(handle);
  ASSERT_EQ(memory().retired_count(), 1U);
  for (const auto& found : {small, window}) {
    owner.pin(*found->allocation, pin::sync_memops);
    owner.unpin(*found->allocation, pin::sync_memops);
    owner.free_after(*found->allocation, {});
  }
  EXPECT_EQ(owner.violation(), std::nullopt);
  EXPECT_EQ(owner.requested(), 0U);
}

// Uses and ends one context and one pool.
void use_and_end_both(Memory& memory) {
  OwnContext own;
  const CUcontext context = own.get();
  memory.contexts().began(context);
  CUdeviceptr address = 0;
  EXPECT_EQ(memory.allocate(&address, large), Answer{CUDA_SUCCESS});
  EXPECT_EQ(memory.allocate(&address, 1000), Answer{CUDA_SUCCESS});
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  CUmemoryPool pool = nullptr;
  GIVEN(driver().cuMemPoolCreate(&pool, &properties));
  memory.pools().created(pool, properties);
  EXPECT_EQ(memory.allocate_ordered(&address, large, pool, StreamName{}), Answer{CUDA_SUCCESS});
  EXPECT_EQ(memory.free_ordered(address, StreamName{}), Answer{CUDA_SUCCESS});
  GIVEN(synchronize());
  ServedPools::Leaving leaving = memory.pools().about_to_end(pool);
  GIVEN(driver().cuMemPoolDestroy(pool));
  memory.pools().ended(std::move(leaving));
  GIVEN(own.destroy());
  memory.contexts().ended(context);
}

// A pool of device 0 that the program has created and allocated memory from.
struct UsedPool {
  explicit UsedPool(Memory& memory) {
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    GIVEN(driver().cuMemPoolCreate(&handle, &properties));
    memory.pools().created(handle, properties);
    EXPECT_EQ(memory.allocate_ordered(&address, large, handle, StreamName{}), Answer{CUDA_SUCCESS});
  }
  ~UsedPool() { EXPECT_CUDA(driver().cuMemPoolDestroy(handle)); }
  CUmemPoolProps properties{};
  CUmemoryPool handle = nullptr;
  CUdeviceptr address = 0;
};

TEST_F(MemoryTest, APoolThatTheDriverRefusesToEndIsServedAsBefore) {
  UsedPool pool{memory()};
  PoolMemory* const before = memory().pools().serve(pool.handle);
  memory().pools().stayed(memory().pools().about_to_end(pool.handle));
  EXPECT_EQ(memory().pools().serve(pool.handle), before);
  EXPECT_EQ(memory().free_ordered(pool.address, StreamName{}), Answer{CUDA_SUCCESS});
}

// Between the driver's end of a pool and our record of it, another thread's new pool may get the
// handle.
TEST_F(MemoryTest, ANewPoolWithTheHandleOfOneThatEndsIsServedByItself) {
  UsedPool pool{memory()};
  PoolMemory* const before = memory().pools().serve(pool.handle);
  ServedPools::Leaving leaving = memory().pools().about_to_end(pool.handle);
  memory().pools().created(pool.handle, pool.properties);
  PoolMemory* const next = memory().pools().serve(pool.handle);
  memory().pools().ended(std::move(leaving));
  EXPECT_NE(next, nullptr);
  EXPECT_NE(next, before);
  EXPECT_EQ(memory().pools().serve(pool.handle), next);
  EXPECT_EQ(memory().free_ordered(pool.address, StreamName{}), Answer{CUDA_SUCCESS});
}

// Leases only a little at first. While a thread waits for more, the program ends the context or
// pool that the thread allocates from.
class LessorThatWaits final : public Lessor {
 public:
  std::function<void()> meanwhile = [] {};
  std::function<void()> at_a_refusal = [] {};
  Size surplus_at_a_wait = 0;
  bool is_late = false;  // memory comes only once the wait is over

  void begin(LeasedBudget& budget, const Uuid& /*device*/, Size /*memory*/) override {
    budget.lease_from(*this);
    budget.add_lease(2 * large);
  }
  Extended extend(LeasedBudget& budget, Size size) override {
    if (!has_come_) at_a_refusal();
    if (!has_come_) return Extended::No;
    budget.add_lease(size);
    return Extended::Yes;
  }
  bool wait_for(LeasedBudget& budget, Size size, std::uint64_t /*until*/, std::uint64_t /*longest*/,
                const StillWanted& /*is_wanted*/) override {
    surplus_at_a_wait = budget.surplus();
    std::exchange(meanwhile, [] {})();
    has_come_ = is_late;
    if (is_late) return false;
    budget.add_lease(size);
    return true;
  }

 private:
  bool has_come_ = false;
};

TEST_F(MemoryTest, AContextMayEndWhileAnAllocationWaits) {
  LessorThatWaits lessor;
  begin({.lessor = &lessor});
  OwnContext own;
  const CUcontext handle = own.get();
  given(large);
  lessor.meanwhile = [&] {
    GIVEN(own.destroy());
    memory().contexts().ended(handle);
    EXPECT_EQ(memory().retired_count(), 0U);
  };
  CUdeviceptr address = 7;
  EXPECT_EQ(memory().allocate(&address, 8 * large), std::nullopt) << "the driver answers";
  EXPECT_EQ(address, 7U);
  end();
}

// A pause may stop the thread just as its wait ends.
TEST_F(MemoryTest, MemoryThatComesAsAWaitForItEndsIsTaken) {
  LessorThatWaits lessor;
  lessor.is_late = true;
  begin({.lessor = &lessor});
  given(8 * large);
  end();
}

// The lessor may have no more than the difference.
TEST_F(MemoryTest, WhatIsCachedCountsTowardsALargerLease) {
  LessorThatWaits lessor;
  begin({.lessor = &lessor});
  const CUdeviceptr freed = given_ordered(large);
  given_ordered(large);
  EXPECT_EQ(memory().free_ordered(freed, StreamName{}), Answer{CUDA_SUCCESS});
  EXPECT_CUDA(synchronize());
  given_ordered(2 * large);
  EXPECT_EQ(lessor.surplus_at_a_wait, large);
  end();
}

// Each attempt finds that some memory has become free, but never enough.
TEST_F(MemoryTest, AWaitForALeaseFollowsEvenIfMemoryIsFreedAllTheTime) {
  LessorThatWaits lessor;
  begin({.lessor = &lessor});
  std::vector<CUdeviceptr> held;
  for (int i = 0; i < 512; ++i) held.push_back(given_ordered(4 * KiB));
  const GivenStream stream;
  lessor.at_a_refusal = [&] {
    if (held.empty()) return;
    EXPECT_CUDA(driver().cuLaunchHostFunc(
        stream, [](void*) { ::usleep(1000); }, nullptr));
    EXPECT_EQ(memory().free_ordered(held.back(), StreamName{.handle = stream}),
              Answer{CUDA_SUCCESS});
    held.pop_back();
  };
  bool has_waited = false;
  lessor.meanwhile = [&] { has_waited = true; };
  given(16 * large);
  EXPECT_TRUE(has_waited);
  EXPECT_FALSE(held.empty()) << "too few for this test";
  end();
}

TEST_F(MemoryTest, APoolMayEndWhileAnAllocationWaits) {
  LessorThatWaits lessor;
  begin({.lessor = &lessor});
  {
    UsedPool pool{memory()};
    EXPECT_EQ(memory().free_ordered(pool.address, StreamName{}), Answer{CUDA_SUCCESS});
    EXPECT_CUDA(synchronize());
    lessor.meanwhile = [&] {
      memory().pools().ended(memory().pools().about_to_end(pool.handle));
      memory().make_room();
      EXPECT_EQ(memory().retired_count(), 0U);
    };
    CUdeviceptr address = 7;
    EXPECT_EQ(memory().allocate_ordered(&address, 8 * large, pool.handle, StreamName{}),
              std::nullopt)
        << "the driver answers";
    EXPECT_EQ(address, 7U);
  }
  end();
}

TEST_F(MemoryTest, PoolsAndContextsThatComeAndGoLeaveNothingBehind) {
  use_and_end_both(memory());
  const Size reserved = reserved_addresses();
  for (int round = 0; round < 20; ++round) use_and_end_both(memory());
  EXPECT_EQ(reserved_addresses(), reserved);
  EXPECT_EQ(memory().retired_count(), 0U);
}

TEST_F(MemoryTest, PoolsAndContextsStayWhileAnotherThreadMayLookAtThem) {
  AnotherThreadInside looks;
  use_and_end_both(memory());
  EXPECT_EQ(memory().retired_count(), 2U);
  looks.leave();
  use_and_end_both(memory());
  EXPECT_EQ(memory().retired_count(), 0U);
}

TEST_F(MemoryTest, AnEndedContextIsLeftToTheDriverUntilItBeginsAgain) {
  const CUcontext current = current_context(driver());
  const CUdeviceptr of_the_pool = given_ordered(large);
  memory().contexts().ended(current);
  EXPECT_EQ(memory().free_ordered(of_the_pool, StreamName{}), std::nullopt);
  CUdeviceptr address = 0;
  EXPECT_EQ(memory().allocate(&address, large), std::nullopt);
  EXPECT_EQ(memory().allocate_ordered(&address, large, StreamName{}), std::nullopt);
  memory().contexts().began(current);
  EXPECT_EQ(memory().free(given(large)), Answer{CUDA_SUCCESS});
  EXPECT_EQ(memory().free_ordered(of_the_pool, StreamName{}), Answer{CUDA_SUCCESS});
}

TEST_F(MemoryTest, AfterALostContextNewAllocationsAreLeftToTheDriver) {
  const CUdeviceptr address = given(large);
  const CUcontext lost = current_context(driver());
  memory().work().context_is_lost(lost);
  CUdeviceptr more = 0;
  EXPECT_EQ(memory().allocate(&more, large), std::nullopt);
  EXPECT_EQ(memory().free(address), Answer{CUDA_SUCCESS}) << "what is ours stays ours";
  memory().work().context_ended(reinterpret_cast<CUcontext>(1));
  EXPECT_EQ(memory().allocate(&more, large), std::nullopt) << "another one has ended";
  memory().work().context_ended(lost);
  EXPECT_EQ(memory().free(given(large)), Answer{CUDA_SUCCESS});
}

}  // namespace
}  // namespace cuvmm::test
