// SPDX-License-Identifier: Apache-2.0
// To the program, a chunk of its own that is spilled is the device memory that it asked for.
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "engine/control.hpp"
#include "hook_sim/on_primary_context.hpp"

namespace cuvmm::test {
namespace {

class SpilledProgramChunks : public OnPrimaryContext {
 protected:
  using Handle = CUmemGenericAllocationHandle;
  static constexpr std::size_t granule = 2 * MiB;
  static constexpr std::size_t limit = 64 * MiB;  // as in tests/CMakeLists.txt
  static constexpr std::size_t chunk_size = 4 * MiB;

  void SetUp() override {
    const char* const spill = std::getenv("VMM_SPILL");
    const char* const bound = std::getenv("VMM_LIMIT");
    if (spill == nullptr || bound == nullptr || std::string{bound} != "64M") {
      GTEST_SKIP() << "nothing is spilled";
    }
    ASSERT_NO_FATAL_FAILURE(OnPrimaryContext::SetUp());
    ASSERT_DONE(create(&fills_, limit));
    ASSERT_DONE(create(&chunk_, chunk_size));
    ASSERT_DONE(through_door<Call::cuMemAddressReserve>(&address_, 8 * chunk_size, std::size_t{0},
                                                        CUdeviceptr{0}, 0ull));
    ASSERT_DONE(map(0));
    ASSERT_DONE(through_door<Call::cuMemsetD32_v2>(address_, 41u, chunk_size / 4));
    ASSERT_DONE(through_door<Call::cuCtxSynchronize>());
  }
  void TearDown() override {
    if (address_ == 0) return;
    if (fills_ != 0) {
      EXPECT_DONE(through_door<Call::cuMemRelease>(fills_));
    }
    EXPECT_DONE(through_door<Call::cuMemUnmap>(address_, chunk_size));
    EXPECT_DONE(through_door<Call::cuMemAddressFree>(address_, 8 * chunk_size));
    EXPECT_DONE(through_door<Call::cuMemRelease>(chunk_));
    EXPECT_EQ(Engine::get()->control()->spilled().physical_in_use, 0U);
    OnPrimaryContext::TearDown();
  }

  CUresult create(Handle* chunk, std::size_t size) {
    const CUmemAllocationProp* const wanted = &properties_;
    return through_door<Call::cuMemCreate>(chunk, size, wanted, 0ull);
  }
  CUresult map(Size offset) {
    const CUresult mapped =
        through_door<Call::cuMemMap>(address_ + offset, chunk_size, std::size_t{0}, chunk_, 0ull);
    if (mapped != CUDA_SUCCESS) return mapped;
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, {0}},
                                 CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return through_door<Call::cuMemSetAccess>(address_ + offset, chunk_size, &access,
                                              std::size_t{1});
  }
  template <class Value>
  Value attribute(CUpointer_attribute which) const {
    Value value{};
    EXPECT_DONE(
        through_door<Call::cuPointerGetAttribute>(static_cast<void*>(&value), which, address_ + 8));
    return value;
  }
  std::uint32_t word(Size offset) const {
    std::uint32_t word = 0;
    EXPECT_DONE(through_door<Call::cuMemcpyDtoH_v2>(static_cast<void*>(&word), address_ + offset,
                                                    sizeof word));
    return word;
  }

  CUmemAllocationProp properties_{.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE,
                                  .location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}},
                                  .win32HandleMetaData = nullptr,
                                  .allocFlags = {}};
  // The program releases what fills the device.
  void make_room() {
    EXPECT_DONE(through_door<Call::cuMemRelease>(fills_));
    fills_ = 0;
  }

  Handle fills_ = 0;
  Handle chunk_ = 0;
  CUdeviceptr address_ = 0;
};

TEST_F(SpilledProgramChunks, AreDescribedAsDeviceMemory) {
  EXPECT_EQ(Engine::get()->control()->spilled().physical_in_use, chunk_size);
  EXPECT_EQ(attribute<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE), CU_MEMORYTYPE_DEVICE);
  EXPECT_EQ(attribute<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL), 0);
  EXPECT_EQ(attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_DEVICE_POINTER), address_ + 8);
  EXPECT_EQ(attribute<std::uint64_t>(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES), 0U);
  unsigned type = 0;
  CUdeviceptr start = 0;
  CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                 CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR};
  void* values[] = {&type, &start};
  EXPECT_DONE(through_door<Call::cuPointerGetAttributes>(2u, &which[0], &values[0], address_ + 8));
  EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_DEVICE));
  EXPECT_EQ(start, address_);
  std::size_t size = 0;
  EXPECT_DONE(through_door<Call::cuMemGetAddressRange_v2>(&start, &size, address_ + 8));
  EXPECT_EQ(start, address_);
  EXPECT_EQ(size, chunk_size);
  ASSERT_DONE(map(4 * chunk_size));
  EXPECT_DONE(through_door<Call::cuPointerGetAttribute>(static_cast<void*>(&start),
                                                        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                                        address_ + 4 * chunk_size));
  EXPECT_EQ(start, address_) << "of the reservation";
  EXPECT_DONE(through_door<Call::cuMemUnmap>(address_ + 4 * chunk_size, chunk_size));
  CUmemAllocationProp told{};
  EXPECT_DONE(through_door<Call::cuMemGetAllocationPropertiesFromHandle>(&told, chunk_));
  EXPECT_EQ(std::memcmp(&told, &properties_, sizeof told), 0);
  unsigned long long flags = 0;
  const CUmemLocation* const device = &properties_.location;
  EXPECT_DONE(through_door<Call::cuMemGetAccess>(&flags, device, address_));
  EXPECT_EQ(flags, static_cast<unsigned>(CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
}

TEST_F(SpilledProgramChunks, CanBeMappedAndReferredToAgain) {
  ASSERT_DONE(map(4 * chunk_size));
  EXPECT_EQ(word(4 * chunk_size + 16), 41U);
  Handle again = 0;
  EXPECT_DONE(through_door<Call::cuMemRetainAllocationHandle>(
      &again, reinterpret_cast<void*>(address_ + 4 * chunk_size)));
  EXPECT_EQ(again, chunk_);
  EXPECT_DONE(through_door<Call::cuMemRelease>(again));
  EXPECT_DONE(through_door<Call::cuMemUnmap>(address_, chunk_size));
  EXPECT_DONE(through_door<Call::cuMemUnmap>(address_ + 4 * chunk_size, chunk_size));
  ASSERT_DONE(map(0));
  EXPECT_EQ(word(chunk_size - 4), 41U) << "the handle keeps it";
}

TEST_F(SpilledProgramChunks, AreReleasedOnce) {
  Handle more = 0;
  ASSERT_DONE(create(&more, granule));
  EXPECT_DONE(through_door<Call::cuMemRelease>(more));
  EXPECT_EQ(through_door<Call::cuMemRelease>(more), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(SpilledProgramChunks, AreBroughtInForAnIpcHandleIfThereIsRoom) {
  int file = -1;
  EXPECT_EQ(through_door<Call::cuMemExportToShareableHandle>(
                static_cast<void*>(&file), chunk_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0ull),
            CUDA_ERROR_INVALID_VALUE);
  CUipcMemHandle handle{};
  EXPECT_EQ(through_door<Call::cuIpcGetMemHandle>(&handle, address_), CUDA_ERROR_INVALID_VALUE)
      << "the device has no room for it";
  make_room();
  EXPECT_DONE(through_door<Call::cuIpcGetMemHandle>(&handle, address_));
  EXPECT_EQ(Engine::get()->control()->spilled().physical_in_use, 0U);
  EXPECT_EQ(word(12), 41U);
}

TEST_F(SpilledProgramChunks, BackNeitherTilesNorMulticastObjectsWithoutRoom) {
  CUarrayMapInfo tile{};
  tile.memHandleType = CU_MEM_HANDLE_TYPE_GENERIC;
  tile.memOperationType = CU_MEM_OPERATION_TYPE_MAP;
  tile.memHandle.memHandle = chunk_;
  EXPECT_EQ(through_door<Call::cuMemMapArrayAsync>(&tile, 1u, CUstream{nullptr}),
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(through_door<Call::cuMulticastBindMem>(Handle{1}, std::size_t{0}, chunk_,
                                                   std::size_t{0}, chunk_size, 0ull),
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(through_door<Call::cuMulticastBindAddr>(Handle{1}, std::size_t{0}, address_, chunk_size,
                                                    0ull),
            CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(SpilledProgramChunks, AreBroughtInForADmaBuf) {
  int file = -1;
  const auto descriptor = [&] {
    return through_door<Call::cuMemGetHandleForAddressRange>(
        static_cast<void*>(&file), address_, chunk_size, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0ull);
  };
  EXPECT_EQ(descriptor(), CUDA_ERROR_OUT_OF_MEMORY);
  make_room();
  const CUresult answer = descriptor();
  if (answer == CUDA_SUCCESS) ::close(file);
  EXPECT_EQ(Engine::get()->control()->spilled().physical_in_use, 0U) << answer;
  EXPECT_EQ(word(chunk_size - 4), 41U);
}

// As all chunks of PyTorch's expandable segments are.
class SpilledExportableChunks : public SpilledProgramChunks {
 protected:
  SpilledExportableChunks() {
    properties_.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  }
  CUresult export_it(int* file) {
    return through_door<Call::cuMemExportToShareableHandle>(
        static_cast<void*>(file), chunk_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0ull);
  }
};

TEST_F(SpilledExportableChunks, AreBroughtInToBeExported) {
  EXPECT_EQ(Engine::get()->control()->spilled().physical_in_use, chunk_size);
  EXPECT_EQ(attribute<std::uint64_t>(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES),
            static_cast<unsigned>(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  int file = -1;
  EXPECT_EQ(export_it(&file), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(file, -1);
  EXPECT_EQ(word(16), 41U);
  make_room();
  ASSERT_DONE(export_it(&file));
  EXPECT_EQ(Engine::get()->control()->spilled().physical_in_use, 0U);
  EXPECT_EQ(word(16), 41U);
  Handle imported = 0;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver takes a descriptor so
  void* const passed = reinterpret_cast<void*>(static_cast<std::uintptr_t>(file));
  ASSERT_DONE(through_door<Call::cuMemImportFromShareableHandle>(
      &imported, passed, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  ::close(file);
  std::swap(chunk_, imported);
  ASSERT_DONE(map(2 * chunk_size));
  std::swap(chunk_, imported);
  EXPECT_EQ(word(2 * chunk_size + 16), 41U) << "it is the same memory";
  EXPECT_DONE(through_door<Call::cuMemUnmap>(address_ + 2 * chunk_size, chunk_size));
  EXPECT_DONE(through_door<Call::cuMemRelease>(imported));
}

TEST_F(SpilledExportableChunks, AreBroughtInForAnIpcHandle) {
  make_room();
  CUipcMemHandle handle{};
  EXPECT_DONE(through_door<Call::cuIpcGetMemHandle>(&handle, address_));
  EXPECT_EQ(Engine::get()->control()->spilled().physical_in_use, 0U);
  CUmemAllocationProp told{};
  EXPECT_DONE(through_door<Call::cuMemGetAllocationPropertiesFromHandle>(&told, chunk_));
  EXPECT_EQ(told.requestedHandleTypes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

TEST_F(SpilledProgramChunks, SurviveAPause) {
  ASSERT_TRUE(Engine::get()->control()->pause(Duration{60'000'000}, Strict::No).ok());
  ASSERT_TRUE(Engine::get()->control()->resume(Partly::No).ok());
  EXPECT_EQ(word(0), 41U);
  EXPECT_EQ(word(chunk_size - 4), 41U);
  EXPECT_EQ(attribute<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE), CU_MEMORYTYPE_DEVICE);
}

}  // namespace
}  // namespace cuvmm::test
