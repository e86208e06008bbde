// SPDX-License-Identifier: Apache-2.0
// Which copies and sets wait for the work submitted before them. All measured on an H200.
#include <functional>
#include <memory>

#include "streams_support.hpp"

namespace cuvmm::test {
namespace {

constexpr Size waited_size = 64 * KiB;

class CopyWaits : public DriverContract {
 protected:
  void SetUp() override {
    DriverContract::SetUp();
    device_ = std::make_unique<GivenBlocking>(2 * waited_size);
    pinned_ = std::make_unique<PinnedWords>(2 * waited_size / 4);
    pageable_.resize(2 * waited_size);
  }
  void TearDown() override {
    device_.reset();
    pinned_.reset();
    DriverContract::TearDown();
  }

  CUdeviceptr device_memory() const { return device_->address(); }
  CUdeviceptr pinned() { return reinterpret_cast<CUdeviceptr>(pinned_->data()); }
  CUdeviceptr pageable() { return reinterpret_cast<CUdeviceptr>(pageable_.data()); }

  // Makes the call while the stream has work that only this thread can end.
  void expect_waits(CUstream busy, const std::function<CUresult()>& call) {
    SlowWork work{kernels(), busy};
    CallElsewhere elsewhere{call};
    EXPECT_TRUE(elsewhere.waits());
    work.end();
    EXPECT_CUDA(elsewhere.answer());
  }
  void expect_does_not_wait(CUstream busy, const std::function<CUresult()>& call) {
    SlowWork work{kernels(), busy};
    EXPECT_CUDA(call());
    EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(busy));
    work.end();
    EXPECT_CUDA(driver().cuStreamSynchronize(busy));
  }

 private:
  std::unique_ptr<GivenBlocking> device_;
  std::unique_ptr<PinnedWords> pinned_;
  std::vector<std::byte> pageable_;
};

TEST_F(CopyWaits, ABlockingCopyFromPageableMemoryWaits) {
  expect_waits(default_stream,
               [&] { return driver().cuMemcpy(device_memory(), pageable(), waited_size); });
}

TEST_F(CopyWaits, ABlockingCopyFromPinnedMemoryWaits) {
  expect_waits(default_stream,
               [&] { return driver().cuMemcpy(device_memory(), pinned(), waited_size); });
}

TEST_F(CopyWaits, ABlockingCopyToPinnedMemoryWaits) {
  expect_waits(default_stream,
               [&] { return driver().cuMemcpy(pinned(), device_memory(), waited_size); });
}

TEST_F(CopyWaits, ABlockingCopyWithinTheHostWaits) {
  expect_waits(default_stream,
               [&] { return driver().cuMemcpy(pinned(), pageable(), waited_size); });
}

TEST_F(CopyWaits, ABlockingSetOfPinnedMemoryWaits) {
  expect_waits(default_stream, [&] { return driver().cuMemsetD8(pinned(), 1, waited_size); });
}

TEST_F(CopyWaits, ABlockingCopyWaitsForBlockingStreamsToo) {
  const GivenStream blocking{CU_STREAM_DEFAULT};
  expect_waits(blocking,
               [&] { return driver().cuMemcpy(device_memory(), pageable(), waited_size); });
}

TEST_F(CopyWaits, AHostSideThatNamesDeviceMemoryIsDeviceMemory) {
  expect_does_not_wait(default_stream, [&] {
    return driver().cuMemcpyHtoD(
        device_memory(), reinterpret_cast<const void*>(device_memory() + waited_size), waited_size);
  });
}

TEST_F(CopyWaits, ACopyOfNothingWaitsForNothing) {
  expect_does_not_wait(default_stream,
                       [&] { return driver().cuMemcpy(device_memory(), pageable(), 0); });
}

TEST_F(CopyWaits, MemoryWithSyncMemopsMakesBlockingCallsWait) {
  const unsigned on = 1;
  ASSERT_CUDA(
      driver().cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, device_memory()));
  expect_waits(default_stream, [&] {
    return driver().cuMemcpyDtoD(device_memory(), device_memory() + waited_size, waited_size);
  });
  expect_waits(default_stream,
               [&] { return driver().cuMemsetD8(device_memory(), 1, waited_size); });
}

TEST_F(CopyWaits, AnAsynchronousCopyFromPageableMemoryIsStaged) {
  const GivenStream stream;
  expect_does_not_wait(stream, [&] {
    return driver().cuMemcpyAsync(device_memory(), pageable(), waited_size, stream);
  });
}

TEST_F(CopyWaits, ALargeAsynchronousCopyFromPageableMemoryWaits) {
  const GivenStream stream;
  const Size large = 8 * MiB;
  const GivenBlocking to{large};
  const std::vector<std::byte> from(large);
  expect_waits(
      stream, [&] { return driver().cuMemcpyHtoDAsync(to.address(), from.data(), large, stream); });
}

TEST_F(CopyWaits, AnAsynchronousCopyWithinTheHostWaits) {
  const GivenStream stream;
  expect_waits(stream, [&] {
    return driver().cuMemcpyAsync(pinned(), pinned() + waited_size, waited_size, stream);
  });
}

TEST_F(CopyWaits, BlockingCopiesIgnoreTheCaptureMode) {
  const GivenStream capturing;
  const GivenStream other;
  GIVEN(driver().cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_GLOBAL));

  EXPECT_CUDA(driver().cuMemcpy(device_memory(), pageable(), waited_size));
  EXPECT_CUDA(driver().cuMemcpy(pageable(), device_memory(), waited_size));
  EXPECT_CUDA(driver().cuMemsetD8(device_memory(), 1, waited_size));

  CUgraph graph = nullptr;
  ASSERT_CUDA(driver().cuStreamEndCapture(capturing, &graph));
  const GivenGraph captured{graph};
  EXPECT_TRUE(captured.nodes().empty());
}

TEST_F(CopyWaits, ABlockingCopyOnACapturedThreadsStreamBreaksTheCapture) {
  GIVEN(driver().cuStreamBeginCapture(per_thread_stream, CU_STREAM_CAPTURE_MODE_RELAXED));

  EXPECT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                driver().cuMemcpyDtoD_per_thread(device_memory(), device_memory() + waited_size,
                                                 waited_size));

  CUgraph graph = nullptr;
  EXPECT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
                driver().cuStreamEndCapture(per_thread_stream, &graph));
}

TEST_F(CopyWaits, ACapturedCopyReadsItsSourceWhenTheGraphRuns) {
  const GivenStream stream;
  std::uint32_t source = 1;
  GIVEN(driver().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  ASSERT_CUDA(driver().cuMemcpyHtoDAsync(device_memory(), &source, 4, stream));
  CUgraph graph = nullptr;
  ASSERT_CUDA(driver().cuStreamEndCapture(stream, &graph));
  const GivenGraph captured{graph};
  const GivenExec exec{captured};

  source = 2;
  ASSERT_CUDA(exec.launch(stream));
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  EXPECT_EQ(read_word(device_memory()), 2u);
}

class BatchWaits : public CopyWaits {
 protected:
  CUresult copy(CUdeviceptr to, CUdeviceptr from, CUmemcpySrcAccessOrder order, CUstream stream) {
    CUmemcpyAttributes attributes{};
    attributes.srcAccessOrder = order;
    size_t bytes = waited_size;
    size_t first = 0;
    return driver().cuMemcpyBatchAsync(&to, &from, &bytes, 1, &attributes, &first, 1, stream);
  }
};

TEST_F(BatchWaits, APageableSourceInStreamOrderWaits) {
  NEEDS_CALL(cuMemcpyBatchAsync_v2);
  const GivenStream stream;
  expect_waits(stream, [&] {
    return copy(device_memory(), pageable(), CU_MEMCPY_SRC_ACCESS_ORDER_STREAM, stream);
  });
}

TEST_F(BatchWaits, AnySourceOrderWaitsForNothing) {
  NEEDS_CALL(cuMemcpyBatchAsync_v2);
  const GivenStream stream;
  expect_does_not_wait(stream, [&] {
    return copy(device_memory(), pageable(), CU_MEMCPY_SRC_ACCESS_ORDER_ANY, stream);
  });
}

TEST_F(BatchWaits, ADeviceSourceReadDuringTheCallWaits) {
  NEEDS_CALL(cuMemcpyBatchAsync_v2);
  const GivenStream stream;
  expect_waits(stream, [&] {
    return copy(device_memory(), device_memory() + waited_size,
                CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL, stream);
  });
}

TEST_F(BatchWaits, APageableTargetWaitsForNothing) {
  NEEDS_CALL(cuMemcpyBatchAsync_v2);
  const GivenStream stream;
  expect_does_not_wait(stream, [&] {
    return copy(pageable(), device_memory(), CU_MEMCPY_SRC_ACCESS_ORDER_STREAM, stream);
  });
}

TEST_F(BatchWaits, BatchesCannotBeCapturedAndBreakNoCapture) {
  NEEDS_CALL(cuMemcpyBatchAsync_v2);
  const GivenStream stream;
  GIVEN(driver().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));

  EXPECT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                copy(device_memory(), device_memory() + waited_size,
                     CU_MEMCPY_SRC_ACCESS_ORDER_STREAM, stream));

  CUgraph graph = nullptr;
  ASSERT_CUDA(driver().cuStreamEndCapture(stream, &graph));
  const GivenGraph captured{graph};
}

}  // namespace
}  // namespace cuvmm::test
