// SPDX-License-Identifier: Apache-2.0
// Many copies in one call, in both signatures of that call.
#include <array>

#include "streams_support.hpp"

namespace cuvmm::test {
namespace {

class CopyBatches : public DriverContract {
 protected:
  static constexpr Size size_ = 64 * KiB;

  void expect_three_copies() const {
    for (std::size_t i = 0; i < 3; ++i) expect_pattern(to_[i], size_, i + 1);
  }

  void SetUp() override {
    DriverContract::SetUp();
    memory_ = std::make_unique<GivenBlocking>(6 * size_);
    for (std::size_t i = 0; i < 3; ++i) {
      from_[i] = memory_->address() + i * size_;
      to_[i] = memory_->address() + (3 + i) * size_;
      sizes_[i] = size_;
      fill_pattern(from_[i], size_, i + 1);
    }
    in_stream_order_.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  }
  void TearDown() override {
    memory_.reset();
    DriverContract::TearDown();
  }

  std::unique_ptr<GivenBlocking> memory_;
  std::array<CUdeviceptr, 3> from_{};
  std::array<CUdeviceptr, 3> to_{};
  std::array<size_t, 3> sizes_{};
  CUmemcpyAttributes in_stream_order_{};
  size_t first_ = 0;
};

TEST_F(CopyBatches, TheFirstSignatureCopiesAll) {
  NEEDS_CALL(cuMemcpyBatchAsync);
  const GivenStream stream;
  size_t failed = 0;

  ASSERT_CUDA(driver().cuMemcpyBatchAsync_v12080(to_.data(), from_.data(), sizes_.data(), 3,
                                                 &in_stream_order_, &first_, 1, &failed, stream));
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  expect_three_copies();
}

TEST_F(CopyBatches, TheSecondSignatureCopiesAll) {
  NEEDS_CALL(cuMemcpyBatchAsync_v2);
  const GivenStream stream;

  ASSERT_CUDA(driver().cuMemcpyBatchAsync(to_.data(), from_.data(), sizes_.data(), 3,
                                          &in_stream_order_, &first_, 1, stream));
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  expect_three_copies();
}

TEST_F(CopyBatches, ABatchIsOrderedBehindTheStreamsWork) {
  NEEDS_CALL(cuMemcpyBatchAsync_v2);
  const GivenStream stream;
  SlowWork work{kernels(), stream};
  ASSERT_CUDA(driver().cuMemsetD32Async(from_[1], 9, size_ / 4, stream));

  ASSERT_CUDA(driver().cuMemcpyBatchAsync(to_.data(), from_.data(), sizes_.data(), 3,
                                          &in_stream_order_, &first_, 1, stream));
  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(stream));
  work.end();
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  EXPECT_TRUE(all_words_are(to_[1], size_ / 4, 9));
}

TEST_F(CopyBatches, HostAndDeviceMayMix) {
  NEEDS_CALL(cuMemcpyBatchAsync_v2);
  const GivenStream stream;
  PinnedWords host{size_ / 4};
  to_[2] = reinterpret_cast<CUdeviceptr>(host.data());

  ASSERT_CUDA(driver().cuMemcpyBatchAsync(to_.data(), from_.data(), sizes_.data(), 3,
                                          &in_stream_order_, &first_, 1, stream));
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  EXPECT_TRUE(has_pattern(host.data(), size_, 3));
}

TEST_F(CopyBatches, ASourceReadDuringTheCallMayChangeAfterIt) {
  NEEDS_CALL(cuMemcpyBatchAsync_v2);
  const GivenStream stream;
  std::uint32_t source = 6;
  CUdeviceptr from = reinterpret_cast<CUdeviceptr>(&source);
  size_t size = sizeof source;
  CUmemcpyAttributes during_the_call{};
  during_the_call.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;

  ASSERT_CUDA(driver().cuMemcpyBatchAsync(to_.data(), &from, &size, 1, &during_the_call, &first_, 1,
                                          stream));
  source = 7;
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  EXPECT_EQ(read_word(to_[0]), 6u);
}

TEST_F(CopyBatches, TheLegacyStreamIsRefused) {
  NEEDS_CALL(cuMemcpyBatchAsync_v2);
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuMemcpyBatchAsync(to_.data(), from_.data(), sizes_.data(), 3,
                                            &in_stream_order_, &first_, 1, default_stream));
}

TEST_F(CopyBatches, CopiesWithoutAttributesAreRefused) {
  NEEDS_CALL(cuMemcpyBatchAsync_v2);
  const GivenStream stream;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuMemcpyBatchAsync(to_.data(), from_.data(), sizes_.data(), 3, nullptr,
                                            nullptr, 0, stream));
}

TEST_F(CopyBatches, AttributesMustBeginAtTheFirstCopy) {
  NEEDS_CALL(cuMemcpyBatchAsync_v2);
  const GivenStream stream;
  first_ = 1;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuMemcpyBatchAsync(to_.data(), from_.data(), sizes_.data(), 3,
                                            &in_stream_order_, &first_, 1, stream));
}

CUDA_MEMCPY3D_BATCH_OP box_of_bytes(CUdeviceptr from, CUdeviceptr to, Size size) {
  CUDA_MEMCPY3D_BATCH_OP operation{};
  operation.src.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
  operation.src.op.ptr.ptr = from;
  operation.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
  operation.dst.op.ptr.ptr = to;
  operation.extent = {.width = size, .height = 1, .depth = 1};
  operation.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  return operation;
}

TEST_F(CopyBatches, BoxesInTheFirstSignature) {
  NEEDS_CALL(cuMemcpy3DBatchAsync);
  const GivenStream stream;
  CUDA_MEMCPY3D_BATCH_OP boxes[] = {box_of_bytes(from_[0], to_[0], size_),
                                    box_of_bytes(from_[1], to_[1], size_),
                                    box_of_bytes(from_[2], to_[2], size_)};
  size_t failed = 0;

  ASSERT_CUDA(driver().cuMemcpy3DBatchAsync_v12080(3, boxes, &failed, 0, stream));
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  expect_three_copies();
}

TEST_F(CopyBatches, BoxesInTheSecondSignature) {
  NEEDS_CALL(cuMemcpy3DBatchAsync_v2);
  const GivenStream stream;
  CUDA_MEMCPY3D_BATCH_OP boxes[] = {box_of_bytes(from_[0], to_[0], size_),
                                    box_of_bytes(from_[1], to_[1], size_),
                                    box_of_bytes(from_[2], to_[2], size_)};

  ASSERT_CUDA(driver().cuMemcpy3DBatchAsync(3, boxes, 0, stream));
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  expect_three_copies();
}

}  // namespace
}  // namespace cuvmm::test
