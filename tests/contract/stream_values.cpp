// SPDX-License-Identifier: Apache-2.0
// Streams that wait for values in memory and write them.
#include "streams_support.hpp"

namespace cuvmm::test {
namespace {

class StreamValues : public DriverContract {
 protected:
  void SetUp() override {
    DriverContract::SetUp();
    NEEDS_CALL(cuStreamWaitValue32_v2);
    NEEDS_CALL(cuStreamWriteValue32_v2);
  }

  // A stream that waits for the word passes with `passes` and stays blocked with `holds`.
  void expect_wait(unsigned flags, std::uint32_t value, std::uint32_t holds, std::uint32_t passes) {
    const GivenStream stream;
    HostFlag word;
    word.set(holds);
    ASSERT_CUDA(driver().cuStreamWaitValue32(stream, word.address(), value, flags));

    EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(stream)) << holds << " holds it";
    word.set(passes);
    CallElsewhere synchronize_stream{[&] { return driver().cuStreamSynchronize(stream); }};
    EXPECT_CUDA(synchronize_stream.answer()) << passes << " lets it pass";
  }

  void expect_wait64(unsigned flags, cuuint64_t value, cuuint64_t holds, cuuint64_t passes) {
    NEEDS_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS);
    const GivenStream waiting;
    const GivenStream writing;
    const GivenBlocking memory{4 * KiB};
    write(memory.address(), &holds, sizeof holds);
    ASSERT_CUDA(driver().cuStreamWaitValue64(waiting, memory.address(), value, flags));

    EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(waiting)) << holds << " holds it";
    ASSERT_CUDA(driver().cuStreamWriteValue64(writing, memory.address(), passes,
                                              CU_STREAM_WRITE_VALUE_DEFAULT));
    ASSERT_CUDA(driver().cuStreamSynchronize(writing));
    EXPECT_CUDA(driver().cuStreamSynchronize(waiting)) << passes << " lets it pass";
  }
};

TEST_F(StreamValues, WaitForEqualPassesAtThatValueOnly) {
  expect_wait(CU_STREAM_WAIT_VALUE_EQ, 5, 6, 5);
}

TEST_F(StreamValues, WaitForAtLeastPassesAtAndAbove) {
  expect_wait(CU_STREAM_WAIT_VALUE_GEQ, 5, 4, 9);
}

TEST_F(StreamValues, WaitForAtLeastComparesAsACycle) {
  expect_wait(CU_STREAM_WAIT_VALUE_GEQ, 0xFFFF'FFF0u, 0xFFFF'FFEFu, 2);
}

TEST_F(StreamValues, WaitForACommonBitPassesWhenOneIsSet) {
  expect_wait(CU_STREAM_WAIT_VALUE_AND, 0b0110, 0b1001, 0b0100);
}

TEST_F(StreamValues, WaitForACommonZeroPassesWhenOneIsClear) {
  NEEDS_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR);
  expect_wait(CU_STREAM_WAIT_VALUE_NOR, 0xFFFF'FFF0u, 0x0000'000Fu, 0x0000'0007u);
}

TEST_F(StreamValues, WideWaitForEqualPassesAtThatValueOnly) {
  expect_wait64(CU_STREAM_WAIT_VALUE_EQ, 5ull << 40, 5, 5ull << 40);
}

TEST_F(StreamValues, WideWaitForAtLeastPassesAtAndAbove) {
  expect_wait64(CU_STREAM_WAIT_VALUE_GEQ, 1ull << 40, 0xFFFF'FFFFull, (1ull << 40) + 1);
}

TEST_F(StreamValues, WideWaitForACommonBitPassesWhenOneIsSet) {
  expect_wait64(CU_STREAM_WAIT_VALUE_AND, 1ull << 50, 0xFFFFull, 3ull << 49);
}

TEST_F(StreamValues, WriteIsOrderedBehindTheStreamsWork) {
  const GivenStream stream;
  const GivenBlocking memory{4 * KiB};
  const GivenStream reading;
  write_word(memory.address(), 1);
  PinnedWords seen{1};
  SlowWork work{kernels(), stream};
  ASSERT_CUDA(
      driver().cuStreamWriteValue32(stream, memory.address(), 2, CU_STREAM_WRITE_VALUE_DEFAULT));

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(stream));
  ASSERT_CUDA(driver().cuMemcpyDtoHAsync(seen.data(), memory.address(), 4, reading));
  ASSERT_CUDA(driver().cuStreamSynchronize(reading));
  EXPECT_EQ(seen[0], 1u);

  work.end();
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));
  EXPECT_EQ(read_word(memory.address()), 2u);
}

TEST_F(StreamValues, WideWriteWritesBothHalves) {
  NEEDS_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS);
  const GivenStream stream;
  const GivenBlocking memory{4 * KiB};
  ASSERT_CUDA(driver().cuStreamWriteValue64(stream, memory.address() + 8, 0x1122'3344'5566'7788ull,
                                            CU_STREAM_WRITE_VALUE_DEFAULT));

  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  EXPECT_EQ(read_word(memory.address() + 8), 0x5566'7788u);
  EXPECT_EQ(read_word(memory.address() + 12), 0x1122'3344u);
}

TEST_F(StreamValues, AStreamIsReleasedByTheWriteOfAnother) {
  const GivenStream waiting;
  const GivenStream writing;
  const GivenBlocking memory{4 * KiB};
  write_word(memory.address(), 0);
  ASSERT_CUDA(driver().cuStreamWaitValue32(waiting, memory.address(), 1, CU_STREAM_WAIT_VALUE_EQ));
  ASSERT_CUDA(driver().cuMemsetD32Async(memory.address() + 64, 6, 1, waiting));
  ASSERT_CUDA(
      driver().cuStreamWriteValue32(writing, memory.address(), 1, CU_STREAM_WRITE_VALUE_DEFAULT));

  ASSERT_CUDA(driver().cuStreamSynchronize(writing));
  ASSERT_CUDA(driver().cuStreamSynchronize(waiting));

  EXPECT_EQ(read_word(memory.address() + 64), 6u);
}

TEST_F(StreamValues, AStreamIsReleasedByAWriteThatNobodyWaitsFor) {
  const GivenStream waiting;
  const GivenStream writing;
  const GivenBlocking memory{4 * KiB};
  write_word(memory.address(), 0);
  ASSERT_CUDA(
      driver().cuStreamWriteValue32(writing, memory.address(), 1, CU_STREAM_WRITE_VALUE_DEFAULT));
  ASSERT_CUDA(driver().cuStreamWaitValue32(waiting, memory.address(), 1, CU_STREAM_WAIT_VALUE_EQ));
  EXPECT_CUDA(driver().cuStreamSynchronize(waiting));
}

TEST_F(StreamValues, AddressesMustBeAligned) {
  const GivenStream stream;
  const GivenBlocking memory{4 * KiB};

  EXPECT_ANSWER(
      CUDA_ERROR_INVALID_VALUE,
      driver().cuStreamWaitValue32(stream, memory.address() + 2, 0, CU_STREAM_WAIT_VALUE_GEQ));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuStreamWriteValue32(stream, memory.address() + 1, 0,
                                              CU_STREAM_WRITE_VALUE_DEFAULT));
  EXPECT_CUDA(driver().cuStreamQuery(stream)) << "and nothing was queued";
}

TEST_F(StreamValues, WideAddressesMustBeAlignedToEight) {
  NEEDS_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS);
  const GivenStream stream;
  const GivenBlocking memory{4 * KiB};

  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuStreamWriteValue64(stream, memory.address() + 4, 0,
                                              CU_STREAM_WRITE_VALUE_DEFAULT));
}

TEST_F(StreamValues, AnInvalidAddressIsRefused) {
  NEEDS_THE_DRIVERS_OWN_MEMORY();
  const GivenStream stream;
  GivenBlocking memory{2 * MiB};
  const CUdeviceptr gone = memory.address();
  ASSERT_CUDA(memory.free());

  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuStreamWriteValue32(stream, gone, 1, CU_STREAM_WRITE_VALUE_DEFAULT));
}

// Measured: an H200's driver refuses it, as the attribute says.
TEST_F(StreamValues, TheFirstSignatureDependsOnAnAttribute) {
  NEEDS_CALL(cuStreamWriteValue32);
  const GivenStream stream;
  const GivenBlocking memory{4 * KiB};
  const bool may = attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1) != 0;

  EXPECT_ANSWER(may ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED,
                driver().cuStreamWriteValue32_v8000(stream, memory.address(), 1,
                                                    CU_STREAM_WRITE_VALUE_DEFAULT));
  EXPECT_ANSWER(
      may ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED,
      driver().cuStreamWaitValue32_v8000(stream, memory.address(), 0, CU_STREAM_WAIT_VALUE_GEQ));
  EXPECT_CUDA(driver().cuStreamSynchronize(stream));
}

CUstreamBatchMemOpParams write_of(CUdeviceptr address, std::uint32_t value) {
  CUstreamBatchMemOpParams operation{};
  operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  operation.writeValue.address = address;
  operation.writeValue.value = value;
  operation.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
  return operation;
}

CUstreamBatchMemOpParams wait_of(CUdeviceptr address, std::uint32_t value) {
  CUstreamBatchMemOpParams operation{};
  operation.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  operation.waitValue.address = address;
  operation.waitValue.value = value;
  operation.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
  return operation;
}

TEST_F(StreamValues, ABatchDoesItsOperationsInOrder) {
  NEEDS_CALL(cuStreamBatchMemOp_v2);
  const GivenStream stream;
  const GivenBlocking memory{4 * KiB};
  HostFlag flag;
  write_word(memory.address(), 0);
  CUstreamBatchMemOpParams operations[] = {
      write_of(memory.address(), 1), wait_of(flag.address(), 1), write_of(memory.address(), 2)};

  ASSERT_CUDA(driver().cuStreamBatchMemOp(stream, 3, operations, 0));

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(stream));
  flag.set();
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));
  EXPECT_EQ(read_word(memory.address()), 2u);
}

TEST_F(StreamValues, ABatchWithAnUnknownOperationIsRefusedWhole) {
  NEEDS_CALL(cuStreamBatchMemOp_v2);
  const GivenStream stream;
  const GivenBlocking memory{4 * KiB};
  write_word(memory.address(), 0);
  CUstreamBatchMemOpParams operations[] = {write_of(memory.address(), 1), {}};
  operations[1].operation = static_cast<CUstreamBatchMemOpType>(99);

  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuStreamBatchMemOp(stream, 2, operations, 0));

  EXPECT_CUDA(driver().cuStreamSynchronize(stream));
  EXPECT_EQ(read_word(memory.address()), 0u);
}

}  // namespace
}  // namespace cuvmm::test
