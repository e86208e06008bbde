// SPDX-License-Identifier: Apache-2.0
// A thread that needs memory which other threads are about to release.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

#include "alloc/memory.hpp"
#include "support/driver_under_test.hpp"
#include "support/unseen_program.hpp"

namespace cuvmm::test {
namespace {

// A driver whose unmapping is slow, and signals when it begins.
std::atomic<bool> unmapping_has_begun{false};
decltype(Driver::cuMemUnmap) quick_unmap;
CUresult slow_unmap(CUdeviceptr address, size_t size) {
  if (!unmapping_has_begun.exchange(true)) {
    std::this_thread::sleep_for(std::chrono::milliseconds{50});
  }
  return quick_unmap(address, size);
}

class MemoryUnderPressure : public DriverContract {
 protected:
  void SetUp() override {
    DriverContract::SetUp();
    slow_.emplace(driver());
    quick_unmap = slow_->cuMemUnmap;
    slow_->cuMemUnmap = slow_unmap;
    unmapping_has_begun = true;  // quick until a test says otherwise
    clock_.emplace(*slow_, unseen_program(captures_, gate_));
    begin(Duration{60'000'000});
  }
  void begin(Duration wait, FreeMode free = FreeMode::Exact) {
    memory_.emplace(
        Memory::Dependencies{*slow_, *clock_, captures_, gate_, submission_epoch_,
                             [] { return true; }},
        MemorySettings{.limit = SizeLimit::of_bytes(32 * MiB), .free = free, .wait = wait});
  }
  void TearDown() override {
    memory_.reset();
    clock_.reset();
    DriverContract::TearDown();
  }
  Memory& memory() { return *memory_; }

 private:
  std::optional<Driver> slow_;
  Captures captures_;
  Gate gate_;
  SubmissionEpoch submission_epoch_;
  std::optional<StreamClock> clock_;
  std::optional<Memory> memory_;
};

TEST_F(MemoryUnderPressure, WaitsForAThreadThatIsReleasing) {
  CUdeviceptr cached = 0;
  ASSERT_EQ(memory().allocate_ordered(&cached, 16 * MiB, StreamName{}), Answer{CUDA_SUCCESS});
  ASSERT_EQ(memory().free_ordered(cached, StreamName{}), Answer{CUDA_SUCCESS});
  EXPECT_CUDA(driver().cuCtxSynchronize_v2000());
  CUdeviceptr held = 0;
  ASSERT_EQ(memory().allocate(&held, 16 * MiB), Answer{CUDA_SUCCESS});
  CUmemoryPool handle = nullptr;
  EXPECT_CUDA(driver().cuDeviceGetDefaultMemPool(&handle, 0));

  unmapping_has_begun = false;
  std::thread lets_go{[&] { memory().pools().serve(handle)->trim(14 * MiB); }};
  while (!unmapping_has_begun) std::this_thread::yield();
  CUdeviceptr wanted = 0;
  EXPECT_EQ(memory().allocate(&wanted, 16 * MiB), Answer{CUDA_SUCCESS})
      << "the pool has 16 MiB that nobody uses, and another thread is at it";
  lets_go.join();
  EXPECT_EQ(memory().violation(), std::nullopt);
}

TEST_F(MemoryUnderPressure, RoomThatAnotherThreadMakesIsRoom) {
  EXPECT_FALSE(memory().make_room()) << "there is nothing to release";
  bool has_room = false;
  // A busy machine may hold this thread up until the turn is over.
  for (int tries = 0; tries < 50 && !has_room; ++tries) {
    PressureTurns::Turn of_another_thread{memory().devices().serve(0)->turns()};
    ASSERT_TRUE(of_another_thread.take(0));
    std::thread ends_its_turn{[&] {
      ::usleep(50'000);
      of_another_thread.give_back();
    }};
    has_room = memory().make_room();
    ends_its_turn.join();
  }
  EXPECT_TRUE(has_room);
}

// A request that lacks one more chunk puts back the others.
TEST_F(MemoryUnderPressure, WaitsForMemoryThatAnotherThreadHoldsForAMoment) {
  DeviceMemory& device = *memory().devices().serve(0);
  std::optional<MemoryInHand::Holder> holder{std::in_place, device.store().in_hand()};
  auto taken = device.store().take({32 * MiB, device.location(), Export::No});
  ASSERT_TRUE(taken.ok()) << taken.error().text();
  std::thread puts_it_back{[&] {
    ::usleep(50'000);
    taken = ChunkRef{};
    holder.reset();
  }};
  CUdeviceptr wanted = 0;
  EXPECT_EQ(memory().allocate(&wanted, 24 * MiB), Answer{CUDA_SUCCESS});
  puts_it_back.join();
}

// Another allocation may reclaim for as long as it waits, and many may come before this one.
TEST_F(MemoryUnderPressure, WaitsNoLongerForItsTurnThanForWork) {
  begin(Duration{50'000});
  CUdeviceptr held = 0;
  ASSERT_EQ(memory().allocate(&held, 24 * MiB), Answer{CUDA_SUCCESS});
  PressureTurns::Turn of_another_thread{memory().devices().serve(0)->turns()};
  ASSERT_TRUE(of_another_thread.take(0));
  CUdeviceptr wanted = 0;
  EXPECT_EQ(memory().allocate(&wanted, 16 * MiB), Answer{CUDA_ERROR_OUT_OF_MEMORY});
}

TEST_F(MemoryUnderPressure, WaitsOnceForADeviceThatNeverFinishes) {
  constexpr Duration wait{5'000'000};  // a second one is longer than a busy machine's delay
  begin(wait, FreeMode::Relaxed);
  CUdeviceptr freed = 0;
  ASSERT_EQ(memory().allocate(&freed, 24 * MiB), Answer{CUDA_SUCCESS});
  std::atomic<bool> may_end{false};
  const auto stuck = [](void* flag) {
    while (!*static_cast<std::atomic<bool>*>(flag)) ::usleep(100);
  };
  EXPECT_CUDA(driver().cuLaunchHostFunc(nullptr, stuck, &may_end));
  ASSERT_EQ(memory().free(freed), Answer{CUDA_SUCCESS});
  CUdeviceptr wanted = 0;
  const std::uint64_t began = now_ns();
  EXPECT_EQ(memory().allocate(&wanted, 16 * MiB), Answer{CUDA_ERROR_OUT_OF_MEMORY});
  const std::uint64_t took = now_ns() - began;
  may_end = true;
  EXPECT_GE(took, in_ns(wait));
  EXPECT_LT(took, 2 * in_ns(wait));
  EXPECT_CUDA(driver().cuCtxSynchronize_v2000());
}

}  // namespace
}  // namespace cuvmm::test
