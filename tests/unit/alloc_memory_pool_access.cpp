// SPDX-License-Identifier: Apache-2.0
// Which devices may use a pool's memory, when the program changes it.
#include <array>
#include <chrono>
#include <functional>
#include <future>
#include <utility>

#include "alloc_memory_world.hpp"

namespace cuvmm::test {
namespace {

// A driver that does something else before it says who may use a pool.
std::function<void()> before_the_answer = [] {};
decltype(Driver::cuMemPoolGetAccess) ask_at_once;
CUresult interrupted_question(CUmemAccess_flags* flags, CUmemoryPool pool,
                              CUmemLocation* location) {
  std::exchange(before_the_answer, [] {})();
  return ask_at_once(flags, pool, location);
}

class AccessToPools : public MemoryTest {
 protected:
  void SetUp() override {
    MemoryTest::SetUp();
    NEEDS_DEVICES(2);
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    GIVEN(driver().cuMemPoolCreate(&pool_, &properties));
    memory().pools().created(pool_, properties);
    table_ = faulty.driver();
    ask_at_once = std::exchange(table_.cuMemPoolGetAccess, interrupted_question);
    auto served = PoolMemory::create(table_, *memory().devices().serve(0), *clock, pool_, nullptr);
    ASSERT_TRUE(served.ok());
    served_ = std::move(*served);
    MemoryPressure pressure{{}};
    ASSERT_TRUE(served_->allocate(8 * MiB, no_stream, pressure).ok());
  }
  void TearDown() override {
    served_.reset();
    if (pool_ != nullptr) {
      EXPECT_CUDA(driver().cuMemPoolDestroy(pool_));
    }
    MemoryTest::TearDown();
  }

  // As the program's call does.
  Result<void> give(int device, CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
    const CUmemAccessDesc line{{CU_MEM_LOCATION_TYPE_DEVICE, {device}}, flags};
    EXPECT_CUDA(driver().cuMemPoolSetAccess(pool_, &line, 1));
    const std::array<int, 1> devices{device};
    return served_->follow_access(devices);
  }
  CUmemAccess_flags of_the_drivers(int device) const {
    CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, {device}};
    CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    EXPECT_CUDA(driver().cuMemPoolGetAccess(&flags, pool_, &location));
    return flags;
  }

  Driver table_;
  CUmemoryPool pool_ = nullptr;
  std::unique_ptr<PoolMemory> served_;
};

TEST_F(AccessToPools, FollowsTheDriversPool) {
  EXPECT_TRUE(give(1).ok());
  EXPECT_EQ(served_->access(), AccessSet::of(0).with(1));
  EXPECT_TRUE(give(1, CU_MEM_ACCESS_FLAGS_PROT_NONE).ok());
  EXPECT_EQ(served_->access(), AccessSet::of(0));
}

// The other thread's change either waits for the first or is over before that ends.
TEST_F(AccessToPools, IsNotLostIfTwoThreadsChangeIt) {
  std::future<Result<void>> other;
  before_the_answer = [&] {
    other = std::async(std::launch::async, [&] {
      EXPECT_CUDA(driver().cuCtxSetCurrent(primary()));
      return give(1);
    });
    other.wait_for(std::chrono::milliseconds{100});
  };
  EXPECT_TRUE(give(0).ok());
  EXPECT_TRUE(other.get().ok());
  EXPECT_EQ(served_->access(), AccessSet::of(0).with(1));
}

TEST_F(AccessToPools, IsTakenBackFromTheDriversPoolIfItCannotBeGiven) {
  for (const Call refused : {Call::cuMemSetAccess, Call::cuMemPoolGetAccess}) {
    faulty.fail_call(refused, 1, CUDA_ERROR_UNKNOWN);
    EXPECT_FALSE(give(1).ok());
    EXPECT_EQ(faulty.faults(), 1U);
    faulty.stop_failing();
    EXPECT_EQ(served_->access(), AccessSet::of(0));
    EXPECT_EQ(of_the_drivers(0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    EXPECT_EQ(of_the_drivers(1), CU_MEM_ACCESS_FLAGS_PROT_NONE);
  }
}

}  // namespace
}  // namespace cuvmm::test
