// SPDX-License-Identifier: Apache-2.0
// The pools as a program uses them: through the public headers, with the library's own engine or
// the preload library's, on whichever driver the process finds.
#include <cuda.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "cuvmm/cuvmm.hpp"
#include "library/driver_calls.hpp"
#include "library/surroundings.hpp"

namespace cuvmm::test {
namespace {

class LibraryPools : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(CALL(cuInit)(0), CUDA_SUCCESS);
    ASSERT_EQ(CALL(cuDevicePrimaryCtxRetain)(&context_, 0), CUDA_SUCCESS);
    ASSERT_EQ(CALL(cuCtxPushCurrent)(context_), CUDA_SUCCESS);
  }
  void TearDown() override {
    CUcontext ours = nullptr;
    EXPECT_EQ(CALL(cuCtxPopCurrent)(&ours), CUDA_SUCCESS);
    EXPECT_EQ(CALL(cuDevicePrimaryCtxRelease)(0), CUDA_SUCCESS);
  }
  static void write(std::uint64_t address, const std::string& text) {
    ASSERT_EQ(CALL(cuMemcpyHtoD)(address, text.data(), text.size()), CUDA_SUCCESS);
  }
  static std::string read(std::uint64_t address, std::size_t size) {
    std::string text(size, '?');
    EXPECT_EQ(CALL(cuMemcpyDtoH)(text.data(), address, size), CUDA_SUCCESS);
    return text;
  }
  static std::uint64_t in_use() { return device_info(0)->physical_in_use; }

 private:
  CUcontext context_ = nullptr;
};

TEST_F(LibraryPools, AnElasticPoolHoldsWhatIsWritten) {
  const std::uint64_t before = in_use();
  {
    auto pool = ElasticPool::create(64 * MiB);
    ASSERT_TRUE(pool.ok()) << pool.error().message();
    EXPECT_EQ(in_use(), before);
    const auto placed = pool->allocate(3 * MiB);
    ASSERT_TRUE(placed.ok());
    write(placed->address + MiB, "over a seam, perhaps");
    EXPECT_EQ(read(pool->base_address() + placed->offset + MiB, 20), "over a seam, perhaps");
    EXPECT_EQ(in_use() - before, pool->stats().physical_bytes);
    const auto places = pool->places();
    ASSERT_EQ(places.size(), 1u);
    EXPECT_EQ(places[0].physical_bytes, pool->stats().physical_bytes);
    EXPECT_TRUE(pool->deallocate(*placed).ok());
    EXPECT_FALSE(pool->is_mapped(placed->offset));
  }
  EXPECT_EQ(in_use(), before);
}

// Whether the pool or the caller chose the place, the answer has both its offset and its address.
TEST_F(LibraryPools, AllocationsHaveAnOffsetAndAnAddress) {
  static_assert(!std::is_convertible_v<PoolAllocation, std::uint64_t>);
  auto pool = ElasticPool::create(64 * MiB);
  ASSERT_TRUE(pool.ok());
  const auto found = pool->allocate(MiB);
  const auto chosen = pool->allocate_at(40 * MiB, MiB);
  ASSERT_TRUE(found.ok() && chosen.ok());
  EXPECT_EQ(chosen->offset, 40 * MiB);
  for (const PoolAllocation& one : {*found, *chosen}) {
    EXPECT_EQ(one.address, pool->base_address() + one.offset);
    EXPECT_EQ(one.size, MiB);
    EXPECT_TRUE(pool->deallocate(one).ok());
    EXPECT_FALSE(pool->is_mapped(one.offset));
  }
  auto models = SharedPool::create(8 * MiB);
  ASSERT_TRUE(models.ok());
  const auto base = models->register_model("a", 64 * MiB);
  ASSERT_TRUE(base.ok());
  const auto of_model = models->allocate("a", MiB);
  const auto chosen_of_model = models->allocate_at("a", 40 * MiB, MiB);
  ASSERT_TRUE(of_model.ok() && chosen_of_model.ok());
  EXPECT_EQ(chosen_of_model->offset, 40 * MiB);
  for (const PoolAllocation& one : {*of_model, *chosen_of_model}) {
    EXPECT_EQ(one.address, *base + one.offset);
    EXPECT_EQ(one.size, MiB);
    EXPECT_TRUE(models->deallocate("a", one).ok());
  }
  EXPECT_EQ(models->model_stats("a")->memory.allocated_bytes, 0u);
}

TEST(LibraryResultsDeathTest, ReadingTheValueOfAFailedCallSaysWhyItFailed) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  cuvmm_error details{};
  details.status = CUVMM_ERROR_OUT_OF_PHYSICAL_MEMORY;
  std::snprintf(details.message, sizeof details.message, "allocate in a pool: out of memory");
  const Result<PoolAllocation> failed{Error{details}};
  EXPECT_DEATH(static_cast<void>(*failed),
               "the value of a failed call was read: allocate in a pool: out of memory");
  EXPECT_DEATH(static_cast<void>(failed->offset), "allocate in a pool: out of memory");
  EXPECT_DEATH(static_cast<void>(Result<void>{}.error()), "called on a successful result");
}

TEST_F(LibraryPools, ErrorsHaveRequestedAndAvailableBytes) {
  auto pool = ElasticPool::create(8 * MiB, {.physical_limit = 4 * MiB});
  ASSERT_TRUE(pool.ok());
  const auto beyond = pool->allocate_at(7 * MiB, 2 * MiB);
  ASSERT_FALSE(beyond.ok());
  EXPECT_EQ(beyond.error().kind(), ErrorKind::InvalidOffset);
  EXPECT_EQ(beyond.error().details().offset, 7 * MiB);
  EXPECT_EQ(beyond.error().details().size, 2 * MiB);
  EXPECT_EQ(beyond.error().details().capacity, 8 * MiB);
  const auto too_much = pool->allocate_at(0, 6 * MiB);
  ASSERT_FALSE(too_much.ok());
  EXPECT_EQ(too_much.error().kind(), ErrorKind::OutOfPhysicalMemory);
  EXPECT_EQ(too_much.error().details().requested, 6 * MiB);
  EXPECT_EQ(too_much.error().details().available, 4 * MiB);
  ASSERT_TRUE(pool->allocate_at(100, 100).ok());
  EXPECT_EQ(pool->allocate_at(150, 1).error().kind(), ErrorKind::AlreadyMapped);
  EXPECT_EQ(pool->deallocate(200, 1).error().kind(), ErrorKind::NotMapped);
  EXPECT_EQ(pool->grow(MiB).error().kind(), ErrorKind::InvalidArgument);
  ElasticPool::Options odd;
  odd.places.granule = 3 * MiB;
  EXPECT_EQ(ElasticPool::create(MiB, odd).error().kind(), ErrorKind::InvalidGranule);
  odd.places = {.devices = {77}};
  EXPECT_EQ(ElasticPool::create(MiB, odd).error().kind(), ErrorKind::NotSupported);
}

// An error names the operation, the numbers, and what was in the way.
TEST_F(LibraryPools, MessagesNameThePlaceAndTheNumber) {
  auto pool = ElasticPool::create(8 * MiB, {.most_capacity = 8 * MiB, .physical_limit = 4 * MiB});
  ASSERT_TRUE(pool.ok());
  const auto too_large = pool->allocate(9 * MiB);
  EXPECT_EQ(too_large.error().kind(), ErrorKind::OutOfAddresses);
  EXPECT_EQ(too_large.error().details().requested, 9 * MiB);
  EXPECT_EQ(too_large.error().details().available, 8 * MiB);
  EXPECT_STREQ(too_large.error().message(),
               "allocate in a pool: out of addresses (in one piece; grow() adds addresses), "
               "9.00 MiB requested, 8.00 MiB available");
  EXPECT_STREQ(pool->allocate(6 * MiB).error().message(),
               "allocate in a pool: out of memory (the pool's physical_limit), 6.00 MiB requested, "
               "4.00 MiB available");
  EXPECT_STREQ(pool->grow(16 * MiB).error().message(),
               "grow a pool: out of addresses (most_capacity was reserved when the pool was "
               "made), 16.0 MiB requested, 8.00 MiB available");
  ASSERT_TRUE(pool->allocate_at(4096, 4096).ok());
  EXPECT_STREQ(pool->allocate_at(1000, 8000).error().message(),
               "allocate in a pool: already mapped, 8000 bytes at offset 1000 reach what lies at "
               "offset 4096");
  EXPECT_STREQ(pool->deallocate(5000, 8000).error().message(),
               "deallocate in a pool: not mapped, 8000 bytes at offset 5000, and nothing lies at "
               "offset 8192");
  EXPECT_STREQ(pool->allocate_at(7 * MiB, 2 * MiB).error().message(),
               "allocate in a pool: invalid offset, 2097152 bytes at offset 7340032 do not fit "
               "into a capacity of 8388608");
  ElasticPool::Options odd;
  odd.places.granule = 3 * MiB;
  const std::string granule = ElasticPool::create(MiB, odd).error().message();
  EXPECT_NE(granule.find("3145728 bytes: it is not a power of two"), std::string::npos) << granule;
  EXPECT_NE(granule.find("a multiple of"), std::string::npos) << granule;
}

TEST_F(LibraryPools, MessagesNameWhatSharesMemoryAndTheRemedy) {
  auto pool = ElasticPool::create(16 * MiB);
  ASSERT_TRUE(pool.ok());
  const std::uint64_t granule = pool->granule();
  ASSERT_TRUE(pool->allocate_at(0, 4096).ok());
  ASSERT_TRUE(pool->allocate_at(granule + 8192, 4096).ok());
  ASSERT_TRUE(pool->compact().ok());
  const auto refused = pool->allocate_at(4096, 8192);
  ASSERT_FALSE(refused.ok());
  EXPECT_STREQ(refused.error().message(),
               "allocate in a pool: already mapped, 8192 bytes at offset 4096 reach what lies at "
               "offset 8192; its granule shares memory since compact(), and the next compact() "
               "separates it");
  ASSERT_TRUE(pool->compact().ok());
  EXPECT_TRUE(pool->allocate_at(4096, 8192).ok());
}

TEST_F(LibraryPools, MessagesNameTheModel) {
  auto pool = SharedPool::create(8 * MiB);
  ASSERT_TRUE(pool.ok());
  ASSERT_TRUE(pool->register_model("chat", 32 * MiB, {.maximum = 4 * MiB}).ok());
  EXPECT_STREQ(pool->allocate("chat", 6 * MiB).error().message(),
               "model \"chat\": take memory for a model: out of memory (the model's maximum), "
               "6.00 MiB requested, 4.00 MiB available");
  EXPECT_STREQ(pool->deallocate("chat", 512, 8).error().message(),
               "model \"chat\": deallocate in a pool: not mapped, 8 bytes at offset 512, and "
               "nothing lies at offset 512");
}

TEST_F(LibraryPools, CompactionReportsWhatItMoved) {
  auto pool = ElasticPool::create(16 * MiB);
  ASSERT_TRUE(pool.ok());
  const std::uint64_t granule = pool->granule();
  ASSERT_TRUE(pool->allocate_at(0, 4096).ok());
  ASSERT_TRUE(pool->allocate_at(2 * granule, 4096, Traits::Movable).ok());
  write(pool->base_address() + 2 * granule, "moved");
  const auto done = pool->compact();
  ASSERT_TRUE(done.ok()) << done.error().message();
  ASSERT_EQ(done->moves.size(), 1u);
  EXPECT_EQ(done->physical_released, granule);
  EXPECT_EQ(done->moves[0].from, 2 * granule);
  EXPECT_EQ(read(pool->base_address() + done->moves[0].to, 5), "moved");
}

// As cudaDeviceReset does. Objects that the program creates afterwards may get the handles of those
// that ended with the context.
TEST_F(LibraryPools, OutliveAResetOfTheContextAndTouchNothingCreatedAfterIt) {
  std::vector<CUevent> events(64);
  std::vector<CUstream> streams(64);
  {
    auto pool = ElasticPool::create(16 * MiB);
    ASSERT_TRUE(pool.ok());
    const std::uint64_t granule = pool->granule();
    ASSERT_TRUE(pool->allocate_at(0, 4096).ok());
    ASSERT_TRUE(pool->allocate_at(2 * granule, 4096, Traits::Movable).ok());
    ASSERT_TRUE(pool->compact().ok());
    ASSERT_TRUE(pool->fence(nullptr).ok());
    CUcontext again = nullptr;
    ASSERT_EQ(CALL(cuDevicePrimaryCtxReset)(0), CUDA_SUCCESS);
    ASSERT_EQ(CALL(cuDevicePrimaryCtxRetain)(&again, 0), CUDA_SUCCESS);
    ASSERT_EQ(CALL(cuCtxSetCurrent)(again), CUDA_SUCCESS);
    for (CUevent& event : events) ASSERT_EQ(CALL(cuEventCreate)(&event, 0), CUDA_SUCCESS);
    for (CUstream& stream : streams) ASSERT_EQ(CALL(cuStreamCreate)(&stream, 0), CUDA_SUCCESS);
    ASSERT_TRUE(pool->allocate_at(3 * granule, 4096, Traits::Movable).ok());
    write(pool->base_address() + 3 * granule, "moved");
    const auto done = pool->compact();
    ASSERT_TRUE(done.ok()) << done.error().message();
    ASSERT_EQ(done->moves.size(), 1u);
    EXPECT_EQ(read(pool->base_address() + done->moves[0].to, 5), "moved");
    ASSERT_EQ(CALL(cuDevicePrimaryCtxReset)(0), CUDA_SUCCESS);
    ASSERT_EQ(CALL(cuDevicePrimaryCtxRetain)(&again, 0), CUDA_SUCCESS);
    ASSERT_EQ(CALL(cuCtxSetCurrent)(again), CUDA_SUCCESS);
    for (CUevent& event : events) ASSERT_EQ(CALL(cuEventCreate)(&event, 0), CUDA_SUCCESS);
    for (CUstream& stream : streams) ASSERT_EQ(CALL(cuStreamCreate)(&stream, 0), CUDA_SUCCESS);
  }
  for (CUevent event : events) EXPECT_EQ(CALL(cuEventDestroy)(event), CUDA_SUCCESS);
  for (CUstream stream : streams) EXPECT_EQ(CALL(cuStreamDestroy)(stream), CUDA_SUCCESS);
}

TEST_F(LibraryPools, AFenceIsWaitedFor) {
  auto pool = ElasticPool::create(16 * MiB);
  ASSERT_TRUE(pool.ok());
  const auto placed = pool->allocate(4 * MiB);
  ASSERT_TRUE(placed.ok());
  CUstream stream = nullptr;
  ASSERT_EQ(CALL(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  for (int i = 0; i < 8; ++i) {
    ASSERT_EQ(CALL(cuMemsetD8Async)(placed->address, 1, 4 * MiB, stream), CUDA_SUCCESS);
  }
  ASSERT_TRUE(pool->fence(stream).ok());
  EXPECT_TRUE(pool->deallocate(*placed).ok());
  EXPECT_EQ(CALL(cuStreamQuery)(stream), CUDA_SUCCESS);
  EXPECT_EQ(CALL(cuStreamDestroy)(stream), CUDA_SUCCESS);
}

TEST_F(LibraryPools, TwoModelsTakeTurnsUnderOneLimit) {
  auto pool = SharedPool::create(8 * MiB);
  ASSERT_TRUE(pool.ok()) << pool.error().message();
  std::vector<std::string> lost;
  const auto base = pool->register_model(
      "first", 32 * MiB,
      {.lost = [&](std::uint64_t, std::uint64_t) { lost.emplace_back("first"); }});
  ASSERT_TRUE(base.ok());
  ASSERT_TRUE(pool->register_model("second", 32 * MiB).ok());
  const auto weights = pool->allocate("first", 6 * MiB);
  ASSERT_TRUE(weights.ok());
  write(weights->address, "weights");
  ASSERT_TRUE(pool->deactivate("first").ok());
  EXPECT_EQ(*pool->activate("first"), Activation::Kept);
  EXPECT_EQ(read(weights->address, 7), "weights");
  ASSERT_TRUE(pool->deactivate("first").ok());
  ASSERT_TRUE(pool->allocate("second", 6 * MiB).ok());
  EXPECT_EQ(lost, (std::vector<std::string>{"first"}));
  const auto refused = pool->activate("first");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind(), ErrorKind::OutOfPhysicalMemory);
  EXPECT_STREQ(refused.error().model(), "first");
  ASSERT_TRUE(pool->unregister_model("second").ok());
  EXPECT_EQ(*pool->activate("first"), Activation::Lost);
  const auto stats = pool->model_stats("first");
  ASSERT_TRUE(stats.ok());
  EXPECT_EQ(stats->base_address, *base);
  EXPECT_EQ(stats->memory.physical_bytes, pool->stats().physical_bytes);
}

TEST_F(LibraryPools, ModelsAreFoundByNameOrNot) {
  auto pool = SharedPool::create(8 * MiB);
  ASSERT_TRUE(pool.ok());
  ASSERT_TRUE(pool->register_model("a", MiB).ok());
  const auto again = pool->register_model("a", MiB);
  EXPECT_EQ(again.error().kind(), ErrorKind::ModelAlreadyExists);
  EXPECT_STREQ(again.error().model(), "a");
  EXPECT_EQ(pool->allocate("b", 1).error().kind(), ErrorKind::ModelNotFound);
  EXPECT_STREQ(pool->allocate("b", 1).error().model(), "b");
}

TEST_F(LibraryPools, AMovedFromPoolRefusesEveryCall) {
  auto made = SharedPool::create(8 * MiB);
  ASSERT_TRUE(made.ok());
  SharedPool from = std::move(*made);
  ASSERT_TRUE(from.register_model("a", MiB).ok());
  SharedPool to = std::move(from);
  // NOLINTNEXTLINE(bugprone-use-after-move): that is the claim
  EXPECT_EQ(from.unregister_model("a").error().kind(), ErrorKind::InvalidArgument);
  EXPECT_EQ(from.register_model("b", MiB).error().kind(), ErrorKind::InvalidArgument);
  EXPECT_EQ(from.allocate("a", 1).error().kind(), ErrorKind::InvalidArgument);
  EXPECT_EQ(from.fence("a", nullptr).error().kind(), ErrorKind::InvalidArgument);
  EXPECT_EQ(from.compact("a").error().kind(), ErrorKind::InvalidArgument);
  EXPECT_EQ(from.stats().models, 0u);
  EXPECT_TRUE(to.unregister_model("a").ok());
}

// A callback is the program's own code: cuvmm serves its allocations like any others.
TEST_F(LibraryPools, CallbacksMayCallTheDriverAndThePool) {
  auto pool = SharedPool::create(4 * MiB);
  ASSERT_TRUE(pool.ok());
  std::uint64_t asked = 0;
  ASSERT_TRUE(pool->register_model("gives", 8 * MiB,
                                   {.reclaim =
                                        [&](std::uint64_t wanted) {
                                          asked = wanted;
                                          CUdeviceptr own = 0;
                                          EXPECT_EQ(CALL(cuMemAlloc)(&own, 1000), CUDA_SUCCESS);
                                          EXPECT_EQ(CALL(cuMemFree)(own), CUDA_SUCCESS);
                                          EXPECT_TRUE(pool->deallocate("gives", 0, 4 * MiB).ok());
                                        }})
                  .ok());
  ASSERT_TRUE(pool->register_model("needs", 8 * MiB).ok());
  ASSERT_TRUE(pool->allocate_at("gives", 0, 4 * MiB).ok());
  ASSERT_TRUE(pool->allocate("needs", 2 * MiB).ok());
  EXPECT_EQ(asked, 2 * MiB);
}

TEST_F(LibraryPools, ACallbackMayUnregisterItsModel) {
  auto pool = SharedPool::create(8 * MiB);
  ASSERT_TRUE(pool.ok());
  const auto marker = std::make_shared<int>(7);
  int losses = 0;
  ASSERT_TRUE(pool->register_model("loses", 8 * MiB,
                                   {.lost =
                                        [&, marker](std::uint64_t, std::uint64_t) {
                                          ++losses;
                                          EXPECT_TRUE(pool->unregister_model("loses").ok());
                                          EXPECT_EQ(*marker, 7) << "what it captured is there";
                                        }})
                  .ok());
  ASSERT_TRUE(pool->register_model("needs", 8 * MiB).ok());
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(pool->allocate("loses", 2 * MiB, Traits::Evictable).ok());
  }
  ASSERT_TRUE(pool->allocate("needs", 8 * MiB).ok());
  EXPECT_EQ(losses, 1);
  EXPECT_EQ(marker.use_count(), 1) << "the callback is gone with its model";
}

// Pool memory counts once, against the same limit as other memory.
TEST_F(LibraryPools, MemoryInfoCountsPools) {
  std::size_t free_before = 0;
  std::size_t free_now = 0;
  std::size_t total = 0;
  auto pool = ElasticPool::create(64 * MiB);
  ASSERT_TRUE(pool.ok());
  pool->trim();  // a driver that cuvmm does not intercept counts cached memory as taken
  ASSERT_EQ(CALL(cuMemGetInfo)(&free_before, &total), CUDA_SUCCESS);
  ASSERT_TRUE(pool->allocate(32 * MiB).ok());
  ASSERT_EQ(CALL(cuMemGetInfo)(&free_now, &total), CUDA_SUCCESS);
  EXPECT_EQ(free_before - free_now, 32 * MiB);
}

TEST_F(LibraryPools, ARefusedCallLeavesTheDeviceUnchanged) {
  const auto held = [] {
    const auto info = device_info(0);
    return info->physical_in_use + info->physical_cached;
  };
  const std::uint64_t memory = device_info(0)->memory;
  const std::uint64_t before = held();
  {
    auto pool = ElasticPool::create(2 * memory, {.most_capacity = 2 * memory});
    ASSERT_TRUE(pool.ok()) << pool.error().message();
    const auto refused = pool->allocate(2 * memory);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().kind(), ErrorKind::OutOfPhysicalMemory);
    EXPECT_LE(held(), before);
  }
  auto buffer = ResizableBuffer::reserve(0, 2 * memory);
  ASSERT_TRUE(buffer.ok()) << buffer.error().message();
  EXPECT_FALSE(buffer->resize(2 * memory).ok());
  EXPECT_LE(held(), before);
  EXPECT_FALSE(SharedBuffer::create(0, 2 * memory, 32 * MiB).ok());
  EXPECT_LE(held(), before);
}

// The program's own allocations come from the driver.
TEST_F(LibraryPools, WhatEndsReturnsItsMemoryToTheDriver) {
  if (is_preloaded()) GTEST_SKIP() << "the program's allocations can use it";
  const auto cached = [] { return device_info(0)->physical_cached; };
  {
    auto pool = ElasticPool::create(64 * MiB);
    const auto whole = pool->allocate(32 * MiB);
    ASSERT_TRUE(whole.ok());
    ASSERT_TRUE(pool->deallocate(*whole).ok());
    EXPECT_GE(cached(), 32 * MiB) << "kept for the next allocation";
  }
  EXPECT_EQ(cached(), 0u) << "an elastic pool";
  {
    auto pool = SharedPool::create(64 * MiB);
    ASSERT_TRUE(pool->register_model("m", 64 * MiB).ok());
    ASSERT_TRUE(pool->allocate("m", 32 * MiB).ok());
  }
  EXPECT_EQ(cached(), 0u) << "a shared pool";
  {
    auto buffer = ResizableBuffer::reserve(0, 64 * MiB);
    ASSERT_TRUE(buffer->resize(2 * MiB).ok());
    ASSERT_TRUE(buffer->resize(32 * MiB).ok());
    ASSERT_TRUE(buffer->resize(2 * MiB).ok());
    EXPECT_EQ(cached(), 0u) << "a buffer that shrinks";
  }
  EXPECT_EQ(cached(), 0u) << "a resizable buffer";
  ASSERT_TRUE(SharedBuffer::create(0, 32 * MiB).ok());
  EXPECT_EQ(cached(), 0u) << "a shared buffer";
}

// As when exit() of a child destroys static objects that other threads of the parent are using.
TEST_F(LibraryPools, AForkedChildDestroysNothing) {
  auto pool = ElasticPool::create(64 * MiB);
  auto host = ShareHost::listen("/tmp/cuvmm-test-fork-" + std::to_string(::getpid()));
  ASSERT_TRUE(pool.ok() && host.ok());
  std::atomic<bool> ends{false};
  std::thread allocates{[&] {
    while (!ends) {
      const auto some = pool->allocate(2 * MiB);
      if (some.ok()) static_cast<void>(pool->deallocate(*some).ok());
    }
  }};
  std::thread waits{[&] {
    while (!ends) static_cast<void>(host->wait(std::chrono::milliseconds{50}).ok());
  }};
  for (int i = 0; i < 20; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(20);
      { const auto gone = std::move(*pool); }
      { const auto gone = std::move(*host); }
      ::_exit(0);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  ends = true;
  allocates.join();
  waits.join();
}

}  // namespace
}  // namespace cuvmm::test
