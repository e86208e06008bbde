// SPDX-License-Identifier: Apache-2.0
// What a program can query about the three kinds of memory. Measured, row by row: libraries choose
// their code paths by these answers.
#include <unistd.h>

#include <memory>
#include <vector>

#include "query_support.hpp"
#include "streams_support.hpp"

namespace cuvmm::test {

CUresult get_dma_buf(CUdeviceptr address, Size size) {
  int fd = -1;
  const CUresult answer = driver().cuMemGetHandleForAddressRange(
      &fd, address, size, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
  if (answer == CUDA_SUCCESS) {
    EXPECT_EQ(::close(fd), 0);
  }
  return answer;
}

namespace {

class AskedAboutBlocking : public DriverContract {
 protected:
  void SetUp() override {
    DriverContract::SetUp();
    memory_ = std::make_unique<GivenBlocking>(asked_size);
    inside_ = memory_->address() + asked_offset;
  }
  void TearDown() override {
    memory_.reset();
    DriverContract::TearDown();
  }
  std::unique_ptr<GivenBlocking> memory_;
  CUdeviceptr inside_ = 0;
};

class AskedAboutAsync : public DriverContract {
 protected:
  void SetUp() override {
    DriverContract::SetUp();
    memory_ = std::make_unique<GivenAsync>(asked_size);
    inside_ = memory_->address() + asked_offset;
  }
  void TearDown() override {
    memory_.reset();
    DriverContract::TearDown();
  }
  std::unique_ptr<GivenAsync> memory_;
  CUdeviceptr inside_ = 0;
};

class AskedAboutMapped : public DriverContract {
 protected:
  void SetUp() override {
    DriverContract::SetUp();
    memory_ = std::make_unique<GivenMapped>(given_asked_mapping());
    inside_ = memory_->address() + asked_offset;
  }
  void TearDown() override {
    memory_.reset();
    DriverContract::TearDown();
  }
  std::unique_ptr<GivenMapped> memory_;
  CUdeviceptr inside_ = 0;
};

// cuMemRetainAllocationHandle
TEST_F(AskedAboutBlocking, ItHasNoHandle) {
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, retain(inside_));
}
TEST_F(AskedAboutAsync, ItHasNoHandle) {
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, retain(inside_));
}
TEST_F(AskedAboutMapped, ItHasAHandle) {
  EXPECT_CUDA(retain(inside_));
}

// cuMemGetAddressRange
TEST_F(AskedAboutBlocking, ItsAddressRangeIsTheAllocation) {
  EXPECT_EQ(address_range(inside_).begin, memory_->address());
  EXPECT_EQ(address_range(inside_).size, asked_size);
}
TEST_F(AskedAboutAsync, ItsAddressRangeIsTheAllocation) {
  EXPECT_EQ(address_range(inside_).begin, memory_->address());
  EXPECT_EQ(address_range(inside_).size, asked_size);
}
TEST_F(AskedAboutMapped, ItsAddressRangeIsTheMapping) {
  EXPECT_EQ(address_range(inside_).begin, memory_->address() + 2 * MiB);
  EXPECT_EQ(address_range(inside_).size, 2 * MiB);
}
TEST_F(AskedAboutBlocking, ItsBaseAndSizeMayBeQueriedAlone) {
  CUdeviceptr begin = 0;
  size_t size = 0;
  EXPECT_CUDA(driver().cuMemGetAddressRange(&begin, nullptr, inside_));
  EXPECT_CUDA(driver().cuMemGetAddressRange(nullptr, &size, inside_));
  EXPECT_EQ(begin, memory_->address());
  EXPECT_EQ(size, asked_size);
}
TEST_F(AskedAboutBlocking, ItsAddressRangeIsTheRequestedSizeToTheByte) {
  auto odd = given_blocking(1000);
  EXPECT_EQ(address_range(odd.address()).size, 1000u);
}

// RANGE_START_ADDR, RANGE_SIZE
TEST_F(AskedAboutBlocking, ItsRangeIsTheAllocation) {
  EXPECT_EQ(asked(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside_), memory_->address());
  EXPECT_EQ(asked(CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside_), asked_size);
}
TEST_F(AskedAboutAsync, ItsRangeIsTheAllocation) {
  EXPECT_EQ(asked(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside_), memory_->address());
  EXPECT_EQ(asked(CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside_), asked_size);
}
TEST_F(AskedAboutMapped, ItsRangeIsTheReservation) {
  EXPECT_EQ(asked(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside_), memory_->address());
  EXPECT_EQ(asked(CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside_), asked_size);
}

// Legacy IPC
TEST_F(AskedAboutBlocking, ItCanGoToAnotherProcessTheOldWay) {
  EXPECT_EQ(asked<bool>(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, inside_), true);
  EXPECT_CUDA(get_ipc_handle(memory_->address()));
}
TEST_F(AskedAboutAsync, ItCannotGoToAnotherProcessTheOldWay) {
  EXPECT_EQ(asked<bool>(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, inside_), false);
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, get_ipc_handle(memory_->address()));
}
// cuvmm makes a handle of it, and answers the query as the driver does.
TEST_F(AskedAboutMapped, ItCannotGoToAnotherProcessTheOldWay) {
  EXPECT_EQ(asked<bool>(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, inside_), false);
  EXPECT_ANSWER(served() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE,
                get_ipc_handle(memory_->address()));
}

// BUFFER_ID
TEST_F(AskedAboutBlocking, ItHasOneBufferId) {
  EXPECT_EQ(asked(CU_POINTER_ATTRIBUTE_BUFFER_ID, memory_->address()),
            asked(CU_POINTER_ATTRIBUTE_BUFFER_ID, inside_));
}
TEST_F(AskedAboutAsync, ItHasOneBufferId) {
  EXPECT_EQ(asked(CU_POINTER_ATTRIBUTE_BUFFER_ID, memory_->address()),
            asked(CU_POINTER_ATTRIBUTE_BUFFER_ID, inside_));
}
TEST_F(AskedAboutMapped, EveryChunkHasABufferId) {
  EXPECT_NE(asked(CU_POINTER_ATTRIBUTE_BUFFER_ID, memory_->address_of(0)),
            asked(CU_POINTER_ATTRIBUTE_BUFFER_ID, memory_->address_of(1)));
  EXPECT_EQ(asked(CU_POINTER_ATTRIBUTE_BUFFER_ID, memory_->address_of(1)),
            asked(CU_POINTER_ATTRIBUTE_BUFFER_ID, inside_));
}
TEST_F(AskedAboutBlocking, ABufferIdIsNeverUsedAgain) {
  auto first = given_blocking(asked_size);
  const auto id = asked(CU_POINTER_ATTRIBUTE_BUFFER_ID, first.address());
  GIVEN(first.free());
  auto second = given_blocking(asked_size);
  EXPECT_NE(asked(CU_POINTER_ATTRIBUTE_BUFFER_ID, second.address()), id);
}

// ALLOWED_HANDLE_TYPES
TEST_F(AskedAboutBlocking, ItAllowsNoHandleTypes) {
  EXPECT_EQ(asked(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, inside_), 0u);
}
TEST_F(AskedAboutAsync, ItAllowsNoHandleTypes) {
  EXPECT_EQ(asked(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, inside_), 0u);
}
TEST_F(AskedAboutMapped, ItAllowsTheHandleTypeItWasMadeWith) {
  EXPECT_EQ(asked(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, inside_),
            std::uint64_t{CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR});
}

// MEMPOOL_HANDLE
TEST_F(AskedAboutBlocking, ItHasNoPool) {
  EXPECT_EQ(asked(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, inside_), 0u);
}
TEST_F(AskedAboutAsync, ItHasItsPool) {
  CUmemoryPool pool = nullptr;
  GIVEN(driver().cuDeviceGetMemPool(&pool, device()));
  EXPECT_EQ(asked<CUmemoryPool>(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, inside_), pool);
}
TEST_F(AskedAboutMapped, ItHasNoPool) {
  EXPECT_EQ(asked(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, inside_), 0u);
}

// CONTEXT
TEST_F(AskedAboutBlocking, ItHasItsContext) {
  EXPECT_EQ(asked<CUcontext>(CU_POINTER_ATTRIBUTE_CONTEXT, inside_), primary());
}
TEST_F(AskedAboutBlocking, ItHasItsContextWhicheverIsCurrent) {
  OwnContext other;
  EXPECT_EQ(asked<CUcontext>(CU_POINTER_ATTRIBUTE_CONTEXT, inside_), primary());
  other.leave();
}
TEST_F(AskedAboutAsync, ItHasNoContext) {
  EXPECT_EQ(asked<CUcontext>(CU_POINTER_ATTRIBUTE_CONTEXT, inside_), nullptr);
}
TEST_F(AskedAboutMapped, ItHasNoContext) {
  EXPECT_EQ(asked<CUcontext>(CU_POINTER_ATTRIBUTE_CONTEXT, inside_), nullptr);
}

// SYNC_MEMOPS
TEST_F(AskedAboutBlocking, ItsCopiesCanBeMadeToWait) {
  EXPECT_CUDA(set_sync_memops(memory_->address()));
}
TEST_F(AskedAboutAsync, ItsCopiesCanBeMadeToWait) {
  EXPECT_CUDA(set_sync_memops(memory_->address()));
}
TEST_F(AskedAboutMapped, ItsCopiesCannotBeMadeToWait) {
  EXPECT_ANSWER(CUDA_ERROR_NOT_SUPPORTED, set_sync_memops(memory_->address()));
}

// Access as cuMemSetAccess() grants it
void expect_no_access_is_told(CUdeviceptr address) {
  const CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  unsigned long long flags = 99;
  EXPECT_CUDA(driver().cuMemGetAccess(&flags, &location, address));
  EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
}
TEST_F(AskedAboutBlocking, ItWasGrantedToNobody) {
  expect_no_access_is_told(memory_->address());
  expect_no_access_is_told(inside_);
}
TEST_F(AskedAboutAsync, ItWasGrantedToNobody) {
  expect_no_access_is_told(memory_->address());
  expect_no_access_is_told(inside_);
}
TEST_F(AskedAboutMapped, ItWasGrantedToItsDevice) {
  const CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  unsigned long long flags = 99;
  EXPECT_CUDA(driver().cuMemGetAccess(&flags, &location, inside_));
  EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

TEST_F(AskedAboutBlocking, NobodyKnowsItOnceItIsFreed) {
  const CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  const CUdeviceptr freed = memory_->address();
  memory_.reset();
  unsigned long long flags = 99;
  CUmemGenericAllocationHandle chunk = 0;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemGetAccess(&flags, &location, freed));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuMemRetainAllocationHandle(&chunk, reinterpret_cast<void*>(freed)));
}

// What another device is told, with and without access
struct ToldElsewhere {
  CUresult range;
  unsigned access_flags;
};
ToldElsewhere told_on_device_1(CUdeviceptr address) {
  const PrimaryContext there{1};
  CUdeviceptr begin = 0;
  size_t size = 0;
  ToldElsewhere told{driver().cuMemGetAddressRange(&begin, &size, address), 99};
  EXPECT_CUDA(driver().cuPointerGetAttribute(&told.access_flags, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS,
                                             address));
  return told;
}
TEST_F(AskedAboutBlocking, AnotherDeviceFindsNoRange) {
  NEEDS_DEVICES(2);
  const ToldElsewhere told = told_on_device_1(inside_);
  EXPECT_ANSWER(CUDA_ERROR_NOT_FOUND, told.range);
  EXPECT_EQ(told.access_flags, CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
}
TEST_F(AskedAboutAsync, AnotherDeviceFindsItsRangeOnceItHasAccess) {
  NEEDS_DEVICES(2);
  int can = 0;
  GIVEN(driver().cuDeviceCanAccessPeer(&can, device(1), device(0)));
  if (can == 0) GTEST_SKIP() << "device 1 cannot reach device 0";
  const ToldElsewhere before = told_on_device_1(inside_);
  EXPECT_ANSWER(CUDA_ERROR_NOT_FOUND, before.range);
  EXPECT_EQ(before.access_flags, CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);

  CUmemoryPool pool = nullptr;
  GIVEN(driver().cuDeviceGetDefaultMemPool(&pool, device()));
  CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, {1}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  GIVEN(driver().cuMemPoolSetAccess(pool, &access, 1));
  EXPECT_ANSWER(CUDA_SUCCESS, told_on_device_1(inside_).range);
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  EXPECT_CUDA(driver().cuMemPoolSetAccess(pool, &access, 1));
}

// What is refused
TEST_F(AskedAboutBlocking, AHostPointerIsRefusedAndSetToNull) {
  void* host = this;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, inside_));
  EXPECT_EQ(host, nullptr);
}
TEST_F(AskedAboutBlocking, NoRangeAtAllIsAnsweredEverywhere) {
  EXPECT_CUDA(driver().cuMemGetAddressRange(nullptr, nullptr, memory_->address() + asked_size));
}

// The address range, without a current context
TEST_F(AskedAboutBlocking, ItsRangeNeedsACurrentContext) {
  CUdeviceptr begin = 0;
  size_t size = 0;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_CONTEXT, without_a_context([&] {
                  return driver().cuMemGetAddressRange(&begin, &size, inside_);
                }));
}

// Memory that the driver grants beyond the requested size belongs to nobody.
TEST_F(AskedAboutBlocking, NothingLiesPastTheRequestedSize) {
  const GivenBlocking small{1000};
  const CUdeviceptr past = small.address() + 1000;
  CUdeviceptr begin = 0;
  size_t size = 0;
  EXPECT_CUDA(driver().cuMemGetAddressRange(&begin, &size, past - 1));
  EXPECT_EQ(size, 1000u);
  EXPECT_ANSWER(CUDA_ERROR_NOT_FOUND, driver().cuMemGetAddressRange(&begin, &size, past));
  for (const auto attribute :
       {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
        CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_BUFFER_ID}) {
    EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, answer_of(attribute, past)) << attribute;
  }
  CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                  CU_POINTER_ATTRIBUTE_HOST_POINTER};
  unsigned type = 1;
  CUdeviceptr host = 0;
  void* data[] = {&type, &host};
  EXPECT_CUDA(driver().cuPointerGetAttributes(2, &wanted[0], &data[0], past));
  EXPECT_EQ(type, 0u);
  EXPECT_EQ(host, past);
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, get_ipc_handle(past));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, set_sync_memops(past));
}

// dma-buf
TEST_F(AskedAboutBlocking, ItCanBeADmaBuf) {
  NEEDS_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED);
  EXPECT_CUDA(get_dma_buf(memory_->address(), asked_size));
}
// Whatever the sizes, which need not be multiples of a page. Elsewhere no dma-buf can begin.
TEST_F(DriverContract, BlocksOfTwoMebibytesOrMoreBeginAtAPage) {
  std::vector<std::unique_ptr<GivenBlocking>> blocks;
  for (const Size beyond : {Size{512}, 1 * MiB + 512, 3 * MiB + 1536, 20 * MiB + 512}) {
    for (int i = 0; i < 3; ++i) {
      blocks.push_back(std::make_unique<GivenBlocking>(2 * MiB + beyond));
      EXPECT_EQ(blocks.back()->address() % (4 * KiB), 0u) << beyond;
    }
  }
}
TEST_F(AskedAboutAsync, ItCanBeADmaBuf) {
  NEEDS_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED);
  EXPECT_CUDA(get_dma_buf(memory_->address(), asked_size));
}
TEST_F(AskedAboutMapped, ItCanBeADmaBuf) {
  NEEDS_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED);
  EXPECT_CUDA(get_dma_buf(memory_->address(), asked_size));
}

// Queries that all three kinds answer alike.
void expect_device_memory(CUdeviceptr address) {
  EXPECT_EQ(asked<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address), 0);
  EXPECT_EQ(asked<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address),
            unsigned{CU_MEMORYTYPE_DEVICE});
  EXPECT_EQ(asked(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address), address);
  EXPECT_EQ(asked<bool>(CU_POINTER_ATTRIBUTE_MAPPED, address), true);
  EXPECT_EQ(asked<bool>(CU_POINTER_ATTRIBUTE_IS_MANAGED, address), false);
  EXPECT_EQ(asked<unsigned>(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, address),
            unsigned{CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE});
  // The host cannot reach it.
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, answer_of(CU_POINTER_ATTRIBUTE_HOST_POINTER, address));
}
TEST_F(AskedAboutBlocking, ItIsDeviceMemory) {
  expect_device_memory(inside_);
}
TEST_F(AskedAboutAsync, ItIsDeviceMemory) {
  expect_device_memory(inside_);
}
TEST_F(AskedAboutMapped, ItIsDeviceMemory) {
  expect_device_memory(inside_);
}

TEST_F(AskedAboutMapped, ReadOnlyItSaysSo) {
  GIVEN(set_access(memory_->address_of(1), 2 * MiB, CU_MEM_ACCESS_FLAGS_PROT_READ));
  EXPECT_EQ(asked<unsigned>(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, inside_),
            unsigned{CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ});
}

}  // namespace
}  // namespace cuvmm::test
