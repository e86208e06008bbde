// SPDX-License-Identifier: Apache-2.0
// Mapping calls are refused on every address that cuvmm has reserved, and on no other.
#include <gtest/gtest.h>

#include "hook_sim/on_primary_context.hpp"

namespace cuvmm::test {
namespace {

constexpr Size granule = 2 * MiB;

class MappingCalls : public OnPrimaryContext {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(OnPrimaryContext::SetUp());
    const CUmemAllocationProp* const asked = &properties_;
    ASSERT_DONE(through_door<Call::cuMemCreate>(&chunk_, std::size_t{granule}, asked, 0ull));
  }
  void TearDown() override {
    EXPECT_DONE(through_door<Call::cuMemRelease>(chunk_));
    OnPrimaryContext::TearDown();
  }

  CUresult map(CUdeviceptr address) {
    return through_door<Call::cuMemMap>(address, std::size_t{granule}, std::size_t{0}, chunk_,
                                        0ull);
  }
  static CUresult unmap(CUdeviceptr address, Size size) {
    return through_door<Call::cuMemUnmap>(address, std::size_t{size});
  }
  static CUresult set_access(CUdeviceptr address, Size size) {
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, {0}},
                                 CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return through_door<Call::cuMemSetAccess>(address, std::size_t{size}, &access, std::size_t{1});
  }
  static CUresult free_addresses(CUdeviceptr address, Size size) {
    return through_door<Call::cuMemAddressFree>(address, std::size_t{size});
  }
  static CUdeviceptr given_addresses(Size size, CUdeviceptr hint = 0) {
    CUdeviceptr address = 0;
    EXPECT_DONE(through_door<Call::cuMemAddressReserve>(&address, std::size_t{size}, std::size_t{0},
                                                        hint, 0ull));
    return address;
  }

  void expect_refused(CUdeviceptr address, Size size) {
    EXPECT_EQ(unmap(address, size), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(map(address), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(set_access(address, size), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(free_addresses(address, size), CUDA_ERROR_INVALID_VALUE);
  }

  CUmemAllocationProp properties_{.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE,
                                  .location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}},
                                  .win32HandleMetaData = nullptr,
                                  .allocFlags = {}};
  CUmemGenericAllocationHandle chunk_ = 0;
};

TEST_F(MappingCalls, AreRefusedOnLiveBlocks) {
  CUdeviceptr small = 0;
  CUdeviceptr large = 0;
  CUdeviceptr ordered = 0;
  ASSERT_DONE(through_door<Call::cuMemAlloc_v2>(&small, std::size_t{1000}));
  ASSERT_DONE(through_door<Call::cuMemAlloc_v2>(&large, std::size_t{5 * MiB}));
  ASSERT_DONE(through_door<Call::cuMemAllocAsync>(&ordered, std::size_t{5 * MiB},
                                                  CUstream{CU_STREAM_LEGACY}));
  for (const CUdeviceptr one : {small, large, large + 5 * MiB - 1, ordered}) {
    expect_refused(round_down(one, granule), granule);
  }
  EXPECT_DONE(through_door<Call::cuMemsetD8_v2>(large, static_cast<unsigned char>(1),
                                                std::size_t{5 * MiB}));
  EXPECT_DONE(through_door<Call::cuCtxSynchronize>());
}

TEST_F(MappingCalls, AreRefusedOnFreedBlocks) {
  CUdeviceptr block = 0;
  ASSERT_DONE(through_door<Call::cuMemAlloc_v2>(&block, std::size_t{4 * MiB}));
  ASSERT_DONE(through_door<Call::cuMemFree_v2>(block));
  expect_refused(round_down(block, granule), granule);
}

TEST_F(MappingCalls, AreRefusedOnAResizableBuffer) {
  Engine& engine = *Engine::get();
  const CUdeviceptr buffer = [&] {
    const HookBypass bypass;
    DeviceMemory& device = **engine.stores().device(0);
    return *engine.resizables().reserve(engine.driver(), device, 16 * MiB);
  }();
  expect_refused(buffer, granule);
  expect_refused(buffer + 14 * MiB, granule);
  const HookBypass bypass;
  EXPECT_TRUE(engine.resizables().release(buffer, Resizable::After{CUstream{nullptr}}).ok());
}

// The driver refuses a second release of a handle. By then, it may have given the handle to cuvmm.
TEST_F(MappingCalls, AreRefusedForChunksOfCuvmm) {
  if (Engine::get()->serving() == nullptr)
    GTEST_SKIP() << "cuvmm does not know the program's chunks";
  const CUdeviceptr address = given_addresses(granule);
  const Driver& driver = Engine::get()->driver();
  const auto own = [&] {
    const HookBypass bypass;
    return Chunk::create(driver, granule, Location::device(0), Export::Yes).value();
  }();
  int descriptor = -1;
  CUmemAllocationProp found{};
  EXPECT_EQ(through_door<Call::cuMemRelease>(own.handle()), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(through_door<Call::cuMemMap>(address, std::size_t{granule}, std::size_t{0},
                                         own.handle(), 0ull),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(through_door<Call::cuMemExportToShareableHandle>(
                &descriptor, own.handle(), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0ull),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_DONE(driver.cuMemGetAllocationPropertiesFromHandle(&found, own.handle()));
  EXPECT_DONE(free_addresses(address, granule));
}

TEST_F(MappingCalls, WorkOnTheProgramsOwnMemory) {
  const CUdeviceptr address = given_addresses(2 * granule);
  EXPECT_DONE(map(address));
  EXPECT_DONE(set_access(address, granule));
  EXPECT_DONE(through_door<Call::cuMemsetD8_v2>(address, static_cast<unsigned char>(1),
                                                std::size_t{granule}));
  EXPECT_DONE(through_door<Call::cuCtxSynchronize>());
  EXPECT_DONE(unmap(address, granule));
  EXPECT_DONE(free_addresses(address, 2 * granule));
}

// cuvmm forgets the addresses before it returns them to the driver.
TEST_F(MappingCalls, WorkOnAddressesThatWereFreed) {
  Engine& engine = *Engine::get();
  const CUdeviceptr ours = [&] {
    const HookBypass bypass;
    auto reservation = Reservation::create(engine.driver(), 2 * granule, granule);
    EXPECT_TRUE(Engine::has_reserved(reservation->address() + granule, 1));
    EXPECT_TRUE(Engine::has_reserved(reservation->address() - 1, 2));
    EXPECT_FALSE(Engine::has_reserved(reservation->address() + 2 * granule, ~Size{0}) &&
                 Engine::has_reserved(reservation->address() - 1, 1));
    return reservation->address();
  }();
  const CUdeviceptr address = given_addresses(2 * granule, ours);
  EXPECT_EQ(address, ours);
  EXPECT_DONE(map(address));
  EXPECT_DONE(unmap(address, granule));
  EXPECT_DONE(free_addresses(address, 2 * granule));
}

}  // namespace
}  // namespace cuvmm::test
