// SPDX-License-Identifier: Apache-2.0
// Pools as objects: defaults, properties, attributes, access.
#include "streams_support.hpp"

namespace cuvmm::test {
namespace {

class Pools : public DriverContract {
 protected:
  void SetUp() override {
    DriverContract::SetUp();
    NEEDS_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
  }
};

CUmemoryPool default_pool(int ordinal = 0) {
  CUmemoryPool pool = nullptr;
  GIVEN(driver().cuDeviceGetDefaultMemPool(&pool, device(ordinal)));
  return pool;
}

CUmemoryPool current_pool() {
  CUmemoryPool pool = nullptr;
  GIVEN(driver().cuDeviceGetMemPool(&pool, device()));
  return pool;
}

int flag_of(CUmemoryPool pool, CUmemPool_attribute attribute) {
  int value = -1;
  EXPECT_CUDA(driver().cuMemPoolGetAttribute(pool, attribute, &value));
  return value;
}

CUmemoryPool pool_of(CUdeviceptr address) {
  CUmemoryPool pool = nullptr;
  EXPECT_CUDA(driver().cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address));
  return pool;
}

TEST_F(Pools, EveryDeviceHasADefaultPoolAndUsesIt) {
  EXPECT_NE(default_pool(), nullptr);
  EXPECT_EQ(default_pool(), default_pool());
  EXPECT_EQ(current_pool(), default_pool());
}

TEST_F(Pools, TwoDevicesHaveTwoDefaultPools) {
  NEEDS_DEVICES(2);
  EXPECT_NE(default_pool(0), default_pool(1));
}

TEST_F(Pools, TheDefaultPoolIsAlsoFoundByItsLocation) {
  NEEDS_CALL(cuMemGetDefaultMemPool);
  CUmemLocation here = device_location();
  CUmemoryPool pool = nullptr;

  EXPECT_CUDA(driver().cuMemGetDefaultMemPool(&pool, &here, CU_MEM_ALLOCATION_TYPE_PINNED));

  EXPECT_EQ(pool, default_pool());
}

TEST_F(Pools, TheCurrentPoolIsAlsoSetByItsLocation) {
  NEEDS_CALL(cuMemSetMemPool);
  const GivenPool pool;
  CUmemLocation here = device_location();
  CUmemoryPool found = nullptr;

  EXPECT_CUDA(driver().cuMemSetMemPool(&here, CU_MEM_ALLOCATION_TYPE_PINNED, pool));

  EXPECT_CUDA(driver().cuMemGetMemPool(&found, &here, CU_MEM_ALLOCATION_TYPE_PINNED));
  EXPECT_EQ(found, static_cast<CUmemoryPool>(pool));
  EXPECT_EQ(current_pool(), static_cast<CUmemoryPool>(pool));
  EXPECT_CUDA(driver().cuDeviceSetMemPool(device(), default_pool()));
}

TEST_F(Pools, TheDefaultPoolCannotBeDestroyed) {
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemPoolDestroy(default_pool()));
  EXPECT_EQ(current_pool(), default_pool());
}

TEST_F(Pools, AllocationsComeFromTheCurrentPool) {
  const GivenStream stream;
  const GivenPool pool;
  ASSERT_CUDA(driver().cuDeviceSetMemPool(device(), pool));

  const CUdeviceptr memory = given_async(1 * MiB, stream);

  EXPECT_EQ(pool_of(memory), static_cast<CUmemoryPool>(pool));
  EXPECT_CUDA(driver().cuDeviceSetMemPool(device(), default_pool()));
  EXPECT_CUDA(driver().cuMemFreeAsync(memory, stream));
  EXPECT_CUDA(driver().cuStreamSynchronize(stream));
}

TEST_F(Pools, DestroyingTheCurrentPoolMakesTheDefaultOneCurrent) {
  GivenPool pool;
  ASSERT_CUDA(driver().cuDeviceSetMemPool(device(), pool));

  ASSERT_CUDA(pool.destroy());

  EXPECT_EQ(current_pool(), default_pool());
}

TEST_F(Pools, AnAllocationKnowsItsPool) {
  const GivenStream stream;
  const GivenPool pool;
  const CUdeviceptr from_default = given_async(1 * MiB, stream);
  const CUdeviceptr from_pool = given_from(pool, 1 * MiB, stream);

  EXPECT_EQ(pool_of(from_default), default_pool());
  EXPECT_EQ(pool_of(from_pool), static_cast<CUmemoryPool>(pool));

  EXPECT_CUDA(driver().cuMemFreeAsync(from_default, stream));
  EXPECT_CUDA(driver().cuMemFreeAsync(from_pool, stream));
  EXPECT_CUDA(driver().cuStreamSynchronize(stream));
}

TEST_F(Pools, BlockingMemoryHasNoPool) {
  const GivenBlocking memory{1 * MiB};
  EXPECT_EQ(pool_of(memory.address()), nullptr);
}

TEST_F(Pools, ANewPoolIsEmptyAndAllowsAllReuse) {
  const GivenPool pool;

  EXPECT_EQ(pool_bytes(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), 0u);
  EXPECT_EQ(pool_bytes(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0u);
  EXPECT_EQ(pool_bytes(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0u);
  EXPECT_EQ(pool_bytes(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 0u);
  EXPECT_EQ(flag_of(pool, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES), 1);
  EXPECT_EQ(flag_of(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC), 1);
  EXPECT_EQ(flag_of(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES), 1);
}

TEST_F(Pools, TheReleaseThresholdIsKept) {
  const GivenPool pool;
  EXPECT_CUDA(set_pool_bytes(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 123 * MiB));
  EXPECT_EQ(pool_bytes(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), 123 * MiB);
}

TEST_F(Pools, TheReuseFlagsAreKept) {
  const GivenPool pool;
  int off = 0;
  EXPECT_CUDA(
      driver().cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &off));
  EXPECT_EQ(flag_of(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC), 0);
  EXPECT_EQ(flag_of(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES), 1);
}

TEST_F(Pools, UsedAndReservedBytesFollowTheAllocations) {
  const GivenStream stream;
  const GivenPool pool;

  const CUdeviceptr memory = given_from(pool, 8 * MiB, stream);
  EXPECT_EQ(pool_bytes(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 8 * MiB);
  EXPECT_GE(pool_bytes(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 8 * MiB);

  ASSERT_CUDA(driver().cuMemFreeAsync(memory, stream));
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));
  EXPECT_EQ(pool_bytes(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0u);
  EXPECT_EQ(pool_bytes(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 8 * MiB);
  EXPECT_GE(pool_bytes(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 8 * MiB);
}

TEST_F(Pools, TheHighMarksIncludeWhatNobodyAskedAbout) {
  const GivenStream stream;
  const GivenPool pool;
  const auto use = [&](Size size) {
    const CUdeviceptr memory = given_from(pool, size, stream);
    ASSERT_CUDA(driver().cuMemFreeAsync(memory, stream));
    ASSERT_CUDA(driver().cuStreamSynchronize(stream));
  };
  for (const Size size : {24 * MiB, 8 * MiB}) {
    use(size);
    ASSERT_CUDA(driver().cuMemPoolTrimTo(pool, 0));
  }
  EXPECT_EQ(pool_bytes(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 24 * MiB);
  EXPECT_GE(pool_bytes(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 24 * MiB);
  EXPECT_CUDA(set_pool_bytes(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 0));
  EXPECT_EQ(pool_bytes(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH),
            pool_bytes(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
  use(8 * MiB);
  EXPECT_CUDA(set_pool_bytes(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 0));
  use(8 * MiB);  // of memory that the pool may still have
  EXPECT_GE(pool_bytes(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 8 * MiB);
}

TEST_F(Pools, AHighMarkCanBeResetToZeroOnly) {
  const GivenStream stream;
  const GivenPool pool;
  const CUdeviceptr big = given_from(pool, 8 * MiB, stream);
  const CUdeviceptr small = given_from(pool, 2 * MiB, stream);
  ASSERT_CUDA(driver().cuMemFreeAsync(big, stream));
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                set_pool_bytes(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, 1 * MiB));
  EXPECT_EQ(pool_bytes(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 10 * MiB);
  EXPECT_CUDA(set_pool_bytes(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0));
  EXPECT_EQ(pool_bytes(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 2 * MiB)
      << "the mark begins again at what is in use";

  EXPECT_CUDA(driver().cuMemFreeAsync(small, stream));
  EXPECT_CUDA(driver().cuStreamSynchronize(stream));
}

TEST_F(Pools, CurrentMarksCannotBeSet) {
  const GivenPool pool;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                set_pool_bytes(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, 0));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                set_pool_bytes(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, 0));
}

TEST_F(Pools, UnknownAttributesAreRefused) {
  const GivenPool pool;
  cuuint64_t value = 0;
  const auto unknown = static_cast<CUmemPool_attribute>(99);
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemPoolGetAttribute(pool, unknown, &value));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemPoolSetAttribute(pool, unknown, &value));
}

TEST_F(Pools, TheOwningDeviceHasAccess) {
  const GivenPool pool;
  CUmemLocation here = device_location();
  CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;

  EXPECT_CUDA(driver().cuMemPoolGetAccess(&flags, pool, &here));

  EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

TEST_F(Pools, AccessCannotBeTakenFromTheOwningDevice) {
  const GivenPool pool;
  const CUmemAccessDesc none = access(CU_MEM_ACCESS_FLAGS_PROT_NONE);
  EXPECT_ANSWER(CUDA_ERROR_INVALID_DEVICE, driver().cuMemPoolSetAccess(pool, &none, 1));
}

TEST_F(Pools, AnotherDeviceGetsAccessWhenItIsGranted) {
  NEEDS_DEVICES(2);
  int may = 0;
  ASSERT_CUDA(driver().cuDeviceCanAccessPeer(&may, device(1), device(0)));
  if (may == 0) GTEST_SKIP() << "the devices cannot reach each other";
  const GivenPool pool;
  CUmemLocation there = device_location(1);
  CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  ASSERT_CUDA(driver().cuMemPoolGetAccess(&flags, pool, &there));
  EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);

  const CUmemAccessDesc both = access(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 1);
  EXPECT_CUDA(driver().cuMemPoolSetAccess(pool, &both, 1));

  EXPECT_CUDA(driver().cuMemPoolGetAccess(&flags, pool, &there));
  EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

TEST_F(Pools, PropertiesOfNoKnownKindAreRefused) {
  CUmemoryPool pool = nullptr;
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = 999;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemPoolCreate(&pool, &properties));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemPoolCreate(&pool, nullptr));
}

}  // namespace
}  // namespace cuvmm::test
