// SPDX-License-Identifier: Apache-2.0
// IPC handles of chunks that the program created without a handle type, through the doors.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "engine/control.hpp"
#include "hook_sim/on_primary_context.hpp"

namespace cuvmm::test {
namespace {

class ExportedLater : public OnPrimaryContext {
 protected:
  using Handle = CUmemGenericAllocationHandle;
  static constexpr std::size_t chunk_size = 2 * MiB;
  static constexpr std::size_t chunks = 3;
  static constexpr Duration patience{60'000'000};

  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(OnPrimaryContext::SetUp());
    if (Engine::get()->serving() == nullptr) GTEST_SKIP() << "the driver answers natively";
    ASSERT_DONE(through_door<Call::cuMemAddressReserve>(&address_, chunks * chunk_size,
                                                        std::size_t{0}, CUdeviceptr{0}, 0ull));
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    const CUmemAllocationProp* const wanted = &properties;
    for (Handle& chunk : chunks_) {
      const CUdeviceptr at = address_ + static_cast<Size>(&chunk - chunks_) * chunk_size;
      ASSERT_DONE(through_door<Call::cuMemCreate>(&chunk, chunk_size, wanted, 0ull));
      ASSERT_DONE(through_door<Call::cuMemMap>(at, chunk_size, std::size_t{0}, chunk, 0ull));
    }
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, {0}},
                                 CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    ASSERT_DONE(
        through_door<Call::cuMemSetAccess>(address_, chunks * chunk_size, &access, std::size_t{1}));
    ASSERT_DONE(through_door<Call::cuMemsetD32_v2>(address_, 41u, chunks * chunk_size / 4));
    ASSERT_DONE(through_door<Call::cuCtxSynchronize>());
  }
  void TearDown() override {
    if (context_ == nullptr) return;
    if (address_ != 0) {
      EXPECT_EQ(word(chunks * chunk_size - 4), 41u);
      EXPECT_DONE(through_door<Call::cuMemUnmap>(address_, chunks * chunk_size));
      for (const Handle chunk : chunks_) EXPECT_DONE(through_door<Call::cuMemRelease>(chunk));
      EXPECT_DONE(through_door<Call::cuMemAddressFree>(address_, chunks * chunk_size));
    }
    OnPrimaryContext::TearDown();
  }

  CUresult get_handle(CUipcMemHandle* handle, Size offset = 0) {
    return through_door<Call::cuIpcGetMemHandle>(handle, address_ + offset);
  }
  std::uint32_t word(Size offset) {
    std::uint32_t word = 0;
    EXPECT_DONE(through_door<Call::cuMemcpyDtoH_v2>(static_cast<void*>(&word), address_ + offset,
                                                    sizeof word));
    return word;
  }

  CUdeviceptr address_ = 0;
  Handle chunks_[chunks] = {};
};

TEST_F(ExportedLater, HaveAHandle) {
  CUipcMemHandle handle{};
  ASSERT_DONE(get_handle(&handle));
  EXPECT_TRUE(LegacyIpc::is_ours(handle));
  EXPECT_EQ(word(0), 41u);
}

TEST_F(ExportedLater, AreReportedAsTheProgramCreatedThem) {
  CUipcMemHandle handle{};
  ASSERT_DONE(get_handle(&handle));
  CUmemAllocationProp told{};
  EXPECT_DONE(through_door<Call::cuMemGetAllocationPropertiesFromHandle>(&told, chunks_[1]));
  EXPECT_EQ(told.requestedHandleTypes, CU_MEM_HANDLE_TYPE_NONE);
  constexpr auto attribute = CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES;
  std::uint64_t types = 99;
  EXPECT_DONE(
      through_door<Call::cuPointerGetAttribute>(static_cast<void*>(&types), attribute, address_));
  EXPECT_EQ(types, 0u);
  types = 99;
  CUpointer_attribute asked[] = {attribute};
  void* into[] = {&types};
  EXPECT_DONE(through_door<Call::cuPointerGetAttributes>(1u, &asked[0], &into[0], address_));
  EXPECT_EQ(types, 0u);
  int file = -1;
  EXPECT_EQ(
      through_door<Call::cuMemExportToShareableHandle>(
          static_cast<void*>(&file), chunks_[1], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0ull),
      CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ExportedLater, HaveOneHandleForAllThreadsThatRequestIt) {
  constexpr int count = 4;
  CUipcMemHandle handles[count] = {};
  std::atomic<int> ready{0};
  std::vector<std::thread> threads;
  for (CUipcMemHandle& handle : handles) {
    threads.emplace_back([&] {
      EXPECT_DONE(through_door<Call::cuCtxSetCurrent>(context_));
      for (++ready; ready < count;) std::this_thread::yield();
      EXPECT_DONE(get_handle(&handle));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const CUipcMemHandle& handle : handles) {
    EXPECT_EQ(std::memcmp(&handle, handles, sizeof handle), 0);
  }
}

TEST_F(ExportedLater, WaitForTheEndOfAPause) {
  ASSERT_TRUE(Engine::get()->control()->pause(patience, Strict::No).ok());
  CUresult answer = CUDA_ERROR_UNKNOWN;
  std::thread asks{[&] {
    EXPECT_DONE(through_door<Call::cuCtxSetCurrent>(context_));
    CUipcMemHandle handle{};
    answer = get_handle(&handle);
  }};
  while (!Engine::get()->calls().has_waiting()) std::this_thread::yield();
  EXPECT_TRUE(Engine::get()->control()->resume(Partly::No).ok());
  asks.join();
  EXPECT_DONE(answer);
}

// A thread whose request has begun counts as outside the barrier, so neither waits for the other.
TEST_F(ExportedLater, DoNotHoldUpPauses) {
  std::atomic<bool> ends{false};
  std::thread pauses{[&] {
    while (!ends) {
      const auto paused = Engine::get()->control()->pause(patience, Strict::No);
      if (!paused.ok()) continue;
      while (!Engine::get()->control()->resume(Partly::No).ok()) std::this_thread::yield();
      // On a busy machine, back-to-back pauses would leave a request no moment between them.
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
  }};
  for (Size chunk = chunks; chunk-- > 0;) {  // each request exchanges one more
    CUipcMemHandle handle{};
    EXPECT_DONE(get_handle(&handle, chunk * chunk_size));
    EXPECT_EQ(word(0), 41u);
  }
  ends = true;
  pauses.join();
}

TEST_F(ExportedLater, HaveNoneDuringACapture) {
  CUstream stream = nullptr;
  ASSERT_DONE(through_door<Call::cuStreamCreate>(&stream, unsigned{CU_STREAM_NON_BLOCKING}));
  ASSERT_DONE(through_door<Call::cuStreamBeginCapture_v2>(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  CUipcMemHandle handle{};
  EXPECT_EQ(get_handle(&handle), CUDA_ERROR_INVALID_VALUE);
  CUgraph graph = nullptr;
  EXPECT_DONE(through_door<Call::cuStreamEndCapture>(stream, &graph));
  EXPECT_DONE(through_door<Call::cuGraphDestroy>(graph));
  EXPECT_DONE(through_door<Call::cuStreamDestroy_v2>(stream));
  EXPECT_DONE(get_handle(&handle));
}

}  // namespace
}  // namespace cuvmm::test
