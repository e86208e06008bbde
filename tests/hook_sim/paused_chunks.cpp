// SPDX-License-Identifier: Apache-2.0
// The program's calls about chunks of its own that a pause has taken off the device and put back.
#include <gtest/gtest.h>

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "engine/control.hpp"
#include "hook_sim/on_primary_context.hpp"

namespace cuvmm::test {
namespace {

using Handle = CUmemGenericAllocationHandle;

constexpr std::size_t chunk_size = 2 * MiB;
constexpr Duration patience{60'000'000};

class PausedChunks : public OnPrimaryContext {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(OnPrimaryContext::SetUp());
    if (Engine::get()->serving() == nullptr) GTEST_SKIP() << "nothing pauses this process";
    ASSERT_DONE(through_door<Call::cuMemAddressReserve>(&address_, 8 * chunk_size, std::size_t{0},
                                                        CUdeviceptr{0}, 0ull));
    properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties_.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    properties_.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    chunk_ = created();
    ASSERT_DONE(map(0, chunk_));
    ASSERT_DONE(allow(0));
    ASSERT_DONE(through_door<Call::cuMemsetD32_v2>(address_, 41u, chunk_size / 4));
    ASSERT_DONE(through_door<Call::cuCtxSynchronize>());
  }
  void TearDown() override {
    if (context_ == nullptr) return;
    if (address_ != 0) {
      through_door<Call::cuMemUnmap>(address_, chunk_size);
      EXPECT_DONE(through_door<Call::cuMemAddressFree>(address_, 8 * chunk_size));
    }
    OnPrimaryContext::TearDown();
  }

  Handle created() {
    Handle chunk = 0;
    const CUmemAllocationProp* const wanted = &properties_;
    EXPECT_DONE(through_door<Call::cuMemCreate>(&chunk, chunk_size, wanted, 0ull));
    return chunk;
  }
  CUresult map(Size offset, Handle chunk) {
    return through_door<Call::cuMemMap>(address_ + offset, chunk_size, std::size_t{0}, chunk, 0ull);
  }
  CUresult allow(Size offset) {
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, {0}},
                                 CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return through_door<Call::cuMemSetAccess>(address_ + offset, chunk_size, &access,
                                              std::size_t{1});
  }
  Handle retained() {
    Handle chunk = 0;
    EXPECT_DONE(through_door<Call::cuMemRetainAllocationHandle>(
        &chunk, reinterpret_cast<void*>(address_ + 1)));
    return chunk;
  }
  std::uint32_t word(Size offset) {
    std::uint32_t word = 0;
    EXPECT_DONE(through_door<Call::cuMemcpyDtoH_v2>(static_cast<void*>(&word), address_ + offset,
                                                    sizeof word));
    return word;
  }
  static void release(Handle chunk) { EXPECT_DONE(through_door<Call::cuMemRelease>(chunk)); }
  static PauseReport pause() {
    const auto paused = Engine::get()->control()->pause(patience, Strict::No);
    EXPECT_TRUE(paused.ok()) << paused.error().text();
    return paused.ok() ? *paused : PauseReport{};
  }
  static void resume() {
    const auto resumed = Engine::get()->control()->resume(Partly::No);
    EXPECT_TRUE(resumed.ok()) << resumed.error().text();
  }

  CUdeviceptr address_ = 0;
  CUmemAllocationProp properties_{};
  Handle chunk_ = 0;
};

TEST_F(PausedChunks, KeepTheirContentsAndTheirHandles) {
  EXPECT_GE(pause().moved, chunk_size);
  resume();
  EXPECT_EQ(word(chunk_size - 4), 41u);
  EXPECT_EQ(retained(), chunk_);
  release(chunk_);
  CUmemAllocationProp told{};
  EXPECT_DONE(through_door<Call::cuMemGetAllocationPropertiesFromHandle>(&told, chunk_));
  EXPECT_EQ(told.location.id, 0);
  ASSERT_DONE(map(2 * chunk_size, chunk_));
  ASSERT_DONE(allow(2 * chunk_size));
  EXPECT_EQ(word(2 * chunk_size + 4), 41u);
  EXPECT_DONE(through_door<Call::cuMemUnmap>(address_ + 2 * chunk_size, chunk_size));
  release(chunk_);
  EXPECT_EQ(word(8), 41u) << "the mapping keeps it";
  EXPECT_EQ(through_door<Call::cuMemRelease>(chunk_), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(PausedChunks, AreGoneOnceReleasedAndUnmapped) {
  size_t free_before = 0;
  size_t total = 0;
  pause();
  resume();
  EXPECT_DONE(through_door<Call::cuMemGetInfo_v2>(&free_before, &total));
  EXPECT_DONE(through_door<Call::cuMemUnmap>(address_, chunk_size));
  release(chunk_);
  size_t free_after = 0;
  EXPECT_DONE(through_door<Call::cuMemGetInfo_v2>(&free_after, &total));
  EXPECT_GE(free_after, free_before + chunk_size);
}

TEST_F(PausedChunks, StayOnceExported) {
  int file = -1;
  pause();
  resume();
  EXPECT_DONE(through_door<Call::cuMemExportToShareableHandle>(
      static_cast<void*>(&file), chunk_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0ull));
  const PauseReport paused = pause();
  EXPECT_GE(paused.stayed, chunk_size);
  EXPECT_STREQ(paused.why, "another process holds it");
  resume();
  Handle imported = 0;
  EXPECT_DONE(through_door<Call::cuMemImportFromShareableHandle>(
      &imported, reinterpret_cast<void*>(static_cast<std::intptr_t>(file)),
      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  ASSERT_DONE(map(2 * chunk_size, imported));
  ASSERT_DONE(allow(2 * chunk_size));
  EXPECT_EQ(word(2 * chunk_size), 41u);
  EXPECT_DONE(through_door<Call::cuMemUnmap>(address_ + 2 * chunk_size, chunk_size));
  release(imported);
  release(chunk_);
  ::close(file);
}

// A query about memory that is away waits until it is back.
TEST_F(PausedChunks, QueriesWaitForThem) {
  pause();
  CUresult answer = CUDA_ERROR_UNKNOWN;
  CUdeviceptr start = 0;
  size_t size = 0;
  std::atomic<bool> answered{false};
  std::thread asks{[&] {
    EXPECT_DONE(through_door<Call::cuCtxSetCurrent>(context_));
    answer = through_door<Call::cuMemGetAddressRange_v2>(&start, &size, address_ + 5);
    answered = true;
  }};
  std::this_thread::sleep_for(std::chrono::milliseconds{50});
  EXPECT_FALSE(answered);
  resume();
  asks.join();
  EXPECT_DONE(answer);
  EXPECT_EQ(start, address_);
  EXPECT_EQ(size, chunk_size);
  release(chunk_);
}

TEST_F(PausedChunks, NewChunksHaveOtherHandles) {
  pause();
  resume();
  std::vector<Handle> more;
  for (int i = 0; i < 6; ++i) {
    more.push_back(created());
    EXPECT_NE(more.back(), chunk_);
    EXPECT_DONE(map((i + 1) * chunk_size, more.back()));
  }
  for (const Handle chunk : more) release(chunk);
  EXPECT_DONE(through_door<Call::cuMemUnmap>(address_ + chunk_size, 6 * chunk_size));
  EXPECT_EQ(retained(), chunk_);
  release(chunk_);
  release(chunk_);
}

}  // namespace
}  // namespace cuvmm::test
