// SPDX-License-Identifier: Apache-2.0
// A pool exported to a second process by a file descriptor.
#include <cerrno>

#include "streams_support.hpp"
#include "support/child.hpp"

namespace cuvmm::test {
namespace {

constexpr Size pooled_size = 1 * MiB;

class PoolSharing : public DriverContract {
 protected:
  void SetUp() override {
    DriverContract::SetUp();
    int handles = 0;
    GIVEN(driver().cuDeviceGetAttribute(
        &handles, CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, device()));
    if ((handles & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == 0) {
      GTEST_SKIP() << "pools cannot be exported by file descriptor here";
    }
  }
};

CUresult export_pool(CUmemoryPool pool, OwnedFd& fd) {
  int number = -1;
  const CUresult answer = driver().cuMemPoolExportToShareableHandle(
      &number, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  if (answer == CUDA_SUCCESS) fd = OwnedFd{number};
  return answer;
}

CUmemoryPool imported_pool(const OwnedFd& fd) {
  CUmemoryPool pool = nullptr;
  GIVEN(driver().cuMemPoolImportFromShareableHandle(
      &pool, reinterpret_cast<void*>(static_cast<std::intptr_t>(fd.get())),
      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  const CUmemAccessDesc here = access(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  GIVEN(driver().cuMemPoolSetAccess(pool, &here, 1));
  return pool;
}

// Imports the pool and one pointer, checks the contents, writes an answer.
CHILD_ROLE(uses_an_imported_pool) {
  const PrimaryContext context;
  CUmemoryPool pool = imported_pool(link.receive_fd());
  auto data = link.receive<CUmemPoolPtrExportData>();
  CUdeviceptr memory = 0;
  ASSERT_CUDA(driver().cuMemPoolImportPointer(&memory, pool, &data));

  expect_pattern(memory, pooled_size, 1);
  fill_pattern(memory, pooled_size, 2);
  ASSERT_CUDA(synchronize());

  EXPECT_CUDA(driver().cuMemFree(memory));
  EXPECT_CUDA(driver().cuMemPoolDestroy(pool));
}

// Imports the pool and makes requests that an imported pool refuses.
CHILD_ROLE(allocates_from_an_imported_pool) {
  const PrimaryContext context;
  const GivenStream stream;
  CUmemoryPool pool = imported_pool(link.receive_fd());
  CUdeviceptr memory = 0;

  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuMemAllocFromPoolAsync(&memory, pooled_size, pool, stream));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuDeviceSetMemPool(device(), pool));

  EXPECT_CUDA(driver().cuMemPoolDestroy(pool));
}

TEST_F(PoolSharing, AnotherProcessReadsAndWritesAnAllocation) {
  const GivenStream stream;
  const GivenPool pool{CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
  const CUdeviceptr memory = given_from(pool, pooled_size, stream);
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));
  fill_pattern(memory, pooled_size, 1);
  ASSERT_CUDA(synchronize());
  OwnedFd fd;
  ASSERT_CUDA(export_pool(pool, fd));
  CUmemPoolPtrExportData data{};
  ASSERT_CUDA(driver().cuMemPoolExportPointer(&data, memory));

  Child child{"uses_an_imported_pool"};
  child.link().send_fd(fd.get());
  child.link().send(data);

  EXPECT_EQ(child.wait(), 0);
  expect_pattern(memory, pooled_size, 2);
  EXPECT_CUDA(driver().cuMemFreeAsync(memory, stream));
  EXPECT_CUDA(driver().cuStreamSynchronize(stream));
}

TEST_F(PoolSharing, AnImportedPoolGivesNoAllocations) {
  const GivenPool pool{CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
  OwnedFd fd;
  ASSERT_CUDA(export_pool(pool, fd));

  Child child{"allocates_from_an_imported_pool"};
  child.link().send_fd(fd.get());

  EXPECT_EQ(child.wait(), 0);
}

TEST_F(PoolSharing, APoolWithoutHandleTypesIsNotExported) {
  const GivenPool pool;
  OwnedFd fd;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, export_pool(pool, fd));
}

TEST_F(PoolSharing, AnAllocationOfAPoolWithoutHandleTypesIsNotExported) {
  const GivenStream stream;
  const CUdeviceptr memory = given_async(pooled_size, stream);
  CUmemPoolPtrExportData data{};

  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemPoolExportPointer(&data, memory));

  EXPECT_CUDA(driver().cuMemFreeAsync(memory, stream));
  EXPECT_CUDA(driver().cuStreamSynchronize(stream));
}

}  // namespace
}  // namespace cuvmm::test
