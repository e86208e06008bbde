// SPDX-License-Identifier: Apache-2.0
// Managed memory: advice, and the queries that report it. All measured on an H200.
#include <array>

#include "streams_support.hpp"

namespace cuvmm::test {
namespace {

constexpr Size size = 1 * MiB;
constexpr int nowhere = CU_DEVICE_INVALID;

CUmemLocation on_host() {
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_HOST;
  return location;
}

class ManagedAdvice : public DriverContract {
 protected:
  void SetUp() override {
    DriverContract::SetUp();
    GIVEN(driver().cuMemAllocManaged(&memory_, size, CU_MEM_ATTACH_GLOBAL));
  }
  void TearDown() override {
    EXPECT_CUDA(driver().cuMemFree(memory_));
    DriverContract::TearDown();
  }

  CUresult advise(CUdeviceptr address, Size length, CUmem_advise advice,
                  CUmemLocation location = device_location()) {
    return driver().cuMemAdvise(address, length, advice, location);
  }
  static int told(CUmem_range_attribute attribute, CUdeviceptr address, Size length = size) {
    int value = -77;
    EXPECT_CUDA(driver().cuMemRangeGetAttribute(&value, sizeof value, attribute, address, length));
    return value;
  }

  CUdeviceptr memory_ = 0;
};

TEST_F(ManagedAdvice, IsNoneAtFirst) {
  EXPECT_EQ(told(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory_), 0);
  EXPECT_EQ(told(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, memory_), nowhere);
  EXPECT_EQ(told(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, memory_), nowhere);
}

TEST_F(ManagedAdvice, ThatHoldsForAPartIsNotReportedForTheWhole) {
  NEEDS_CALL(cuMemAdvise_v2);
  ASSERT_CUDA(advise(memory_, size, CU_MEM_ADVISE_SET_READ_MOSTLY));
  EXPECT_EQ(told(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory_), 1);

  ASSERT_CUDA(advise(memory_ + size / 2, 1, CU_MEM_ADVISE_UNSET_READ_MOSTLY));

  EXPECT_EQ(told(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory_), 0);
  EXPECT_EQ(told(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory_, size / 2), 1);
  EXPECT_EQ(told(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory_ + size / 2 + 4 * KiB, 4 * KiB), 1);
}

TEST_F(ManagedAdvice, NamesDevicesAndTheHost) {
  NEEDS_CALL(cuMemAdvise_v2);
  ASSERT_CUDA(advise(memory_, size, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, on_host()));
  ASSERT_CUDA(advise(memory_, size, CU_MEM_ADVISE_SET_ACCESSED_BY, on_host()));
  ASSERT_CUDA(advise(memory_, size, CU_MEM_ADVISE_SET_ACCESSED_BY, device_location()));

  EXPECT_EQ(told(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, memory_), CU_DEVICE_CPU);
  EXPECT_EQ(told(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE, memory_),
            CU_MEM_LOCATION_TYPE_HOST);
  std::array<int, 3> accessors{};
  ASSERT_CUDA(driver().cuMemRangeGetAttribute(accessors.data(), sizeof accessors,
                                              CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, memory_, size));
  EXPECT_EQ(accessors, (std::array<int, 3>{0, CU_DEVICE_CPU, nowhere}));
}

TEST_F(ManagedAdvice, BelongsToManagedMemoryAlone) {
  NEEDS_CALL(cuMemAdvise_v2);
  const GivenBlocking blocking{size};
  int value = 0;

  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                advise(blocking.address(), size, CU_MEM_ADVISE_SET_READ_MOSTLY));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, advise(memory_, 0, CU_MEM_ADVISE_SET_READ_MOSTLY));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, advise(memory_, 2 * size, CU_MEM_ADVISE_SET_READ_MOSTLY));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, advise(memory_, size, CU_MEM_ADVISE_SET_ACCESSED_BY,
                                                 device_location(device_count())));
  EXPECT_ANSWER(
      CUDA_ERROR_INVALID_VALUE,
      driver().cuMemRangeGetAttribute(&value, sizeof value, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY,
                                      blocking.address(), size));
}

TEST_F(ManagedAdvice, APrefetchIsReportedAndDoesNotWait) {
  NEEDS_CALL(cuMemPrefetchAsync_v2);
  const GivenStream stream;
  SlowWork work{kernels(), stream};

  ASSERT_CUDA(driver().cuMemPrefetchAsync(memory_, size, on_host(), 0, stream));

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(stream));
  EXPECT_EQ(told(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, memory_), CU_DEVICE_CPU);
  work.end();
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));
}

TEST_F(ManagedAdvice, APrefetchElsewhereIsRefused) {
  NEEDS_CALL(cuMemPrefetchAsync_v2);
  const GivenStream stream;
  const GivenBlocking blocking{size};

  EXPECT_ANSWER(
      CUDA_ERROR_INVALID_DEVICE,
      driver().cuMemPrefetchAsync(memory_, size, device_location(device_count()), 0, stream));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuMemPrefetchAsync(blocking.address(), size, on_host(), 0, stream));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuMemPrefetchAsync(memory_, size, on_host(), 1, stream));
}

TEST_F(ManagedAdvice, PrefetchesCannotBeCaptured) {
  NEEDS_CALL(cuMemPrefetchAsync_v2);
  const GivenStream stream;
  GIVEN(driver().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));

  EXPECT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                driver().cuMemPrefetchAsync(memory_, size, on_host(), 0, stream));

  CUgraph graph = nullptr;
  EXPECT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, driver().cuStreamEndCapture(stream, &graph));
}

TEST_F(ManagedAdvice, IsAttachedAsAWholeAndNotToTheLegacyStreamAlone) {
  const GivenStream stream;

  EXPECT_CUDA(driver().cuStreamAttachMemAsync(stream, memory_, 0, CU_MEM_ATTACH_SINGLE));
  EXPECT_CUDA(driver().cuStreamAttachMemAsync(stream, memory_, size, CU_MEM_ATTACH_GLOBAL));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuStreamAttachMemAsync(stream, memory_, size / 2, CU_MEM_ATTACH_GLOBAL));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuStreamAttachMemAsync(default_stream, memory_, 0, CU_MEM_ATTACH_SINGLE));
  EXPECT_CUDA(driver().cuStreamSynchronize(stream));
}

}  // namespace
}  // namespace cuvmm::test
