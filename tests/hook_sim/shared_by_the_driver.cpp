// SPDX-License-Identifier: Apache-2.0
// A process whose memory the driver itself shares with others must not leave its devices.
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/interprocess_memory.hpp"
#include "hook_sim/on_primary_context.hpp"
#include "hook_sim/stand_ins.hpp"

namespace cuvmm::test {
namespace {

bool may_leave_devices() {
  const bool may = InterprocessMemory::close();
  InterprocessMemory::reopen();
  return may;
}

class SharedByTheDriver : public OnPrimaryContext {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(OnPrimaryContext::SetUp());
    forget_what_is_shared();
  }
  void TearDown() override {
    forget_what_is_shared();
    OnPrimaryContext::TearDown();
  }
  static void forget_what_is_shared() {
    while (!may_leave_devices()) InterprocessMemory::remove();
  }
};

TEST_F(SharedByTheDriver, MemoryOfANativeProcessUntilItIsClosed) {
  for (const auto open :
       {&through_door<Call::cuIpcOpenMemHandle, CUdeviceptr*, CUipcMemHandle, unsigned>,
        &through_door<Call::cuIpcOpenMemHandle_v2, CUdeviceptr*, CUipcMemHandle, unsigned>}) {
    CUdeviceptr address = 0;
    ASSERT_DONE(open(&address, CUipcMemHandle{}, 0u));
    ASSERT_DONE(open(&address, CUipcMemHandle{}, 0u));
    EXPECT_FALSE(may_leave_devices());
    EXPECT_DONE(through_door<Call::cuIpcCloseMemHandle>(address));
    EXPECT_FALSE(may_leave_devices()) << "it is open once more";
    EXPECT_NE(through_door<Call::cuIpcCloseMemHandle>(address + 1), CUDA_SUCCESS);
    EXPECT_FALSE(may_leave_devices());
    EXPECT_DONE(through_door<Call::cuIpcCloseMemHandle>(address));
    EXPECT_TRUE(may_leave_devices());
  }
}

// Of memory that cuvmm serves, others get nothing while the process is off its devices.
TEST_F(SharedByTheDriver, MemoryWhoseHandleTheProgramHas) {
  CUdeviceptr address = 0;
  CUipcMemHandle handle{};
  ASSERT_DONE(through_door<Call::cuMemAlloc_v2>(&address, std::size_t{2 * MiB}));
  EXPECT_TRUE(may_leave_devices());
  EXPECT_DONE(through_door<Call::cuIpcGetMemHandle>(&handle, address));
  EXPECT_EQ(may_leave_devices(), Engine::get()->serving() != nullptr);
  EXPECT_DONE(through_door<Call::cuMemFree_v2>(address));
}

TEST_F(SharedByTheDriver, MemoryOfAnotherApiUntilItIsDestroyed) {
  CUexternalMemory memory = nullptr;
  const CUDA_EXTERNAL_MEMORY_HANDLE_DESC handle{};
  ASSERT_DONE(through_door<Call::cuImportExternalMemory>(&memory, &handle));
  EXPECT_FALSE(may_leave_devices());
  EXPECT_NE(through_door<Call::cuDestroyExternalMemory>(CUexternalMemory{}), CUDA_SUCCESS);
  EXPECT_FALSE(may_leave_devices());
  EXPECT_DONE(through_door<Call::cuDestroyExternalMemory>(memory));
  EXPECT_TRUE(may_leave_devices());
}

TEST_F(SharedByTheDriver, APoolExportedOrImported) {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemoryPool pool = nullptr;
  CUmemoryPool imported = nullptr;
  ASSERT_DONE(
      through_door<Call::cuMemPoolCreate>(&pool, static_cast<const CUmemPoolProps*>(&properties)));
  EXPECT_TRUE(may_leave_devices());

  int file = -1;
  ASSERT_DONE(through_door<Call::cuMemPoolExportToShareableHandle>(
      static_cast<void*>(&file), pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0ull));
  EXPECT_FALSE(may_leave_devices());

  forget_what_is_shared();
  ASSERT_DONE(through_door<Call::cuMemPoolImportFromShareableHandle>(
      &imported, reinterpret_cast<void*>(static_cast<std::intptr_t>(file)),
      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0ull));
  EXPECT_FALSE(may_leave_devices());
  ::close(file);
  EXPECT_DONE(through_door<Call::cuMemPoolDestroy>(imported));
  EXPECT_DONE(through_door<Call::cuMemPoolDestroy>(pool));
}

}  // namespace
}  // namespace cuvmm::test
