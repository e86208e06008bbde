// SPDX-License-Identifier: Apache-2.0
// Which memory operations a capture allows, by its mode and the thread's mode. Measured on an H200
// unless marked.
#include "streams_support.hpp"

namespace cuvmm::test {
namespace {

class CaptureMemory : public DriverContract {
 protected:
  void TearDown() override {
    // A thread's mode would outlive the test.
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    EXPECT_CUDA(driver().cuThreadExchangeStreamCaptureMode(&mode));
    EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL) << "the test left the thread in another mode";
    DriverContract::TearDown();
  }

  void expect_that_allocation_is_refused(CUstreamCaptureMode mode) {
    const GivenStream stream;
    begin_capture(stream, mode);
    CUdeviceptr memory = 0;
    EXPECT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, driver().cuMemAlloc(&memory, 2 * MiB));
    expect_invalidated(stream);
  }
  void expect_that_free_is_refused(CUstreamCaptureMode mode) {
    const GivenStream stream;
    GivenBlocking memory{2 * MiB};
    begin_capture(stream, mode);
    EXPECT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, driver().cuMemFree(memory.address()));
    expect_invalidated(stream);
    EXPECT_CUDA(driver().cuMemsetD8(memory.address(), 1, memory.size())) << "it is still there";
  }
  void expect_that_a_pool_query_is_refused(CUstreamCaptureMode mode) {
    NEEDS_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
    const GivenStream stream;
    CUmemoryPool pool = nullptr;
    ASSERT_CUDA(driver().cuDeviceGetDefaultMemPool(&pool, device()));
    begin_capture(stream, mode);
    int value = 0;
    EXPECT_ANSWER(
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
        driver().cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &value));
    expect_invalidated(stream);
  }
  void expect_that_virtual_memory_is_created(CUstreamCaptureMode mode) {
    const GivenStream stream;
    const Size granule = granularity();
    begin_capture(stream, mode);
    { const GivenChunk chunk = given_chunk(granule); }
    expect_well(stream);
  }
};

TEST_F(CaptureMemory, AGlobalCaptureRefusesAllocation) {
  expect_that_allocation_is_refused(CU_STREAM_CAPTURE_MODE_GLOBAL);
}

TEST_F(CaptureMemory, AThreadLocalCaptureRefusesAllocation) {
  expect_that_allocation_is_refused(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

TEST_F(CaptureMemory, AGlobalCaptureRefusesFree) {
  expect_that_free_is_refused(CU_STREAM_CAPTURE_MODE_GLOBAL);
}

TEST_F(CaptureMemory, AThreadLocalCaptureRefusesFree) {
  expect_that_free_is_refused(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

// cuvmm tells by such a query whether the driver would refuse a free.
TEST_F(CaptureMemory, AGlobalCaptureRefusesToQueryAPool) {
  expect_that_a_pool_query_is_refused(CU_STREAM_CAPTURE_MODE_GLOBAL);
}

TEST_F(CaptureMemory, AThreadLocalCaptureRefusesToQueryAPool) {
  expect_that_a_pool_query_is_refused(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

TEST_F(CaptureMemory, ARelaxedCaptureAllowsToQueryAPool) {
  NEEDS_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
  const GivenStream stream;
  CUmemoryPool pool = nullptr;
  ASSERT_CUDA(driver().cuDeviceGetDefaultMemPool(&pool, device()));
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  int value = 0;
  EXPECT_CUDA(
      driver().cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &value));
  expect_well(stream);
}

TEST_F(CaptureMemory, AGlobalCaptureAllowsCreatingAChunk) {
  expect_that_virtual_memory_is_created(CU_STREAM_CAPTURE_MODE_GLOBAL);
}

TEST_F(CaptureMemory, AThreadLocalCaptureAllowsCreatingAChunk) {
  expect_that_virtual_memory_is_created(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

TEST_F(CaptureMemory, ARelaxedCaptureAllowsAllocation) {
  const GivenStream stream;
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  const GivenBlocking memory{2 * MiB};
  expect_well(stream);
}

TEST_F(CaptureMemory, ARelaxedCaptureAllowsFree) {
  const GivenStream stream;
  GivenBlocking memory{2 * MiB};
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  EXPECT_CUDA(memory.free());
  expect_well(stream);
}

TEST_F(CaptureMemory, ARelaxedCaptureAllowsMapping) {
  const GivenStream stream;
  const Size granule = granularity();
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  const GivenMapped mapped = given_mapped(1, granule);
  expect_well(stream);
}

TEST_F(CaptureMemory, ARelaxedCaptureAllowsUnmapping) {
  const GivenStream stream;
  GivenMapped mapped = given_mapped(1, granularity());
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  EXPECT_CUDA(mapped.mapping(0).unmap());
  expect_well(stream);
}

TEST_F(CaptureMemory, ARelaxedCaptureAllowsReleasingAChunk) {
  const GivenStream stream;
  GivenMapped mapped = given_mapped(1, granularity());
  ASSERT_CUDA(mapped.mapping(0).unmap());
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  EXPECT_CUDA(mapped.chunk(0).release());
  expect_well(stream);
}

TEST_F(CaptureMemory, ARelaxedCaptureAllowsFreeingAddresses) {
  const GivenStream stream;
  GivenReservation reservation{granularity()};
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  EXPECT_CUDA(driver().cuMemAddressFree(reservation.forget(), reservation.size()));
  expect_well(stream);
}

TEST_F(CaptureMemory, AGlobalCaptureAllowsFreeingAddresses) {
  const GivenStream stream;
  GivenReservation reservation{granularity()};
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  EXPECT_CUDA(driver().cuMemAddressFree(reservation.forget(), reservation.size()));
  expect_well(stream);
}

TEST_F(CaptureMemory, AGlobalCaptureAllowsMapping) {
  const GivenStream stream;
  const Size granule = granularity();
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  const GivenMapped mapped = given_mapped(1, granule);
  expect_well(stream);
}

TEST_F(CaptureMemory, AGlobalCaptureAllowsUnmapping) {
  const GivenStream stream;
  GivenMapped mapped = given_mapped(1, granularity());
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  EXPECT_CUDA(mapped.mapping(0).unmap());
  expect_well(stream);
}

TEST_F(CaptureMemory, AGlobalCaptureBindsOtherThreadsToo) {
  const GivenStream stream;
  CUdeviceptr memory = 0;
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);

  CallElsewhere allocate{[&] { return driver().cuMemAlloc(&memory, 2 * MiB); }};

  EXPECT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, allocate.answer());
  expect_invalidated(stream);
}

TEST_F(CaptureMemory, AThreadLocalCaptureLeavesOtherThreadsFree) {
  const GivenStream stream;
  CUdeviceptr memory = 0;
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);

  CallElsewhere allocate{[&] { return driver().cuMemAlloc(&memory, 2 * MiB); }};

  EXPECT_CUDA(allocate.answer());
  expect_well(stream);
  EXPECT_CUDA(driver().cuMemFree(memory));
}

// As cuvmm does for its own memory while the program captures.
TEST_F(CaptureMemory, ARelaxedThreadMayManageMemoryDuringAGlobalCapture) {
  const GivenStream capturing;
  const GivenStream other;
  const GivenEvent event;
  const Size granule = granularity();
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  begin_capture(capturing, CU_STREAM_CAPTURE_MODE_GLOBAL);

  ASSERT_CUDA(driver().cuThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL) << "the mode before";
  const GivenBlocking memory{2 * MiB};
  GivenMapped mapped = given_mapped(2, granule);
  EXPECT_CUDA(driver().cuEventRecord(event, other));
  const CUresult asked = driver().cuEventQuery(event);
  EXPECT_TRUE(asked == CUDA_SUCCESS || asked == CUDA_ERROR_NOT_READY) << asked;
  EXPECT_CUDA(mapped.mapping(0).unmap());
  ASSERT_CUDA(driver().cuThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_RELAXED);

  expect_well(capturing);
}

}  // namespace
}  // namespace cuvmm::test
