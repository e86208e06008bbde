// SPDX-License-Identifier: Apache-2.0
// Blocking and asynchronous copies of contiguous bytes.
#include <cstring>

#include "streams_support.hpp"

namespace cuvmm::test {
namespace {

constexpr Size copied = 1 * MiB;

class LinearCopies : public DriverContract {};

std::vector<std::byte> host_pattern(std::uint64_t seed) {
  std::vector<std::byte> bytes(copied);
  fill_host_pattern(bytes.data(), copied, seed);
  return bytes;
}

CUdeviceptr as_address(const void* host) {
  return reinterpret_cast<CUdeviceptr>(host);
}

TEST_F(LinearCopies, ToTheDeviceAndBack) {
  const GivenBlocking memory{copied};
  const std::vector<std::byte> sent = host_pattern(1);
  std::vector<std::byte> received(copied);

  ASSERT_CUDA(driver().cuMemcpyHtoD(memory.address(), sent.data(), copied));
  ASSERT_CUDA(driver().cuMemcpyDtoH(received.data(), memory.address(), copied));

  EXPECT_TRUE(has_pattern(received.data(), copied, 1));
}

TEST_F(LinearCopies, WithinTheDevice) {
  const GivenBlocking from{copied};
  const GivenBlocking to{copied};
  fill_pattern(from.address(), copied, 2);

  ASSERT_CUDA(driver().cuMemcpyDtoD(to.address(), from.address(), copied));

  expect_pattern(to.address(), copied, 2);
}

TEST_F(LinearCopies, TheGenericCopyKnowsItsDirections) {
  const GivenBlocking from{copied};
  const GivenBlocking to{copied};
  const std::vector<std::byte> sent = host_pattern(3);
  std::vector<std::byte> received(copied);

  ASSERT_CUDA(driver().cuMemcpy(from.address(), as_address(sent.data()), copied));
  ASSERT_CUDA(driver().cuMemcpy(to.address(), from.address(), copied));
  ASSERT_CUDA(driver().cuMemcpy(as_address(received.data()), to.address(), copied));

  EXPECT_TRUE(has_pattern(received.data(), copied, 3));
}

TEST_F(LinearCopies, ThePerThreadFlavoursCopyToo) {
  const GivenBlocking from{copied};
  const GivenBlocking to{copied};
  const std::vector<std::byte> sent = host_pattern(4);
  std::vector<std::byte> received(copied);

  ASSERT_CUDA(driver().cuMemcpyHtoD_per_thread(from.address(), sent.data(), copied));
  ASSERT_CUDA(driver().cuMemcpyDtoD_per_thread(to.address(), from.address(), copied));
  ASSERT_CUDA(driver().cuMemcpyDtoH_per_thread(received.data(), to.address(), copied));

  EXPECT_TRUE(has_pattern(received.data(), copied, 4));
}

TEST_F(LinearCopies, AsynchronousCopiesRunInStreamOrder) {
  const GivenStream stream;
  const GivenBlocking from{copied};
  const GivenBlocking to{copied};
  PinnedWords sent{copied / 4};
  PinnedWords received{copied / 4};
  fill_host_pattern(sent.data(), copied, 5);

  ASSERT_CUDA(driver().cuMemcpyHtoDAsync(from.address(), sent.data(), copied, stream));
  ASSERT_CUDA(driver().cuMemcpyDtoDAsync(to.address(), from.address(), copied, stream));
  ASSERT_CUDA(driver().cuMemcpyDtoHAsync(received.data(), to.address(), copied, stream));
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  EXPECT_TRUE(has_pattern(received.data(), copied, 5));
}

TEST_F(LinearCopies, TheGenericAsynchronousCopyKnowsItsDirections) {
  const GivenStream stream;
  const GivenBlocking memory{copied};
  PinnedWords sent{copied / 4};
  PinnedWords received{copied / 4};
  fill_host_pattern(sent.data(), copied, 6);

  ASSERT_CUDA(driver().cuMemcpyAsync(memory.address(), as_address(sent.data()), copied, stream));
  ASSERT_CUDA(
      driver().cuMemcpyAsync(as_address(received.data()), memory.address(), copied, stream));
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  EXPECT_TRUE(has_pattern(received.data(), copied, 6));
}

TEST_F(LinearCopies, ThePerThreadAsynchronousFlavoursUseTheThreadsOwnStream) {
  const GivenBlocking memory{copied};
  PinnedWords sent{copied / 4};
  PinnedWords received{copied / 4};
  fill_host_pattern(sent.data(), copied, 7);

  ASSERT_CUDA(
      driver().cuMemcpyHtoDAsync_per_thread(memory.address(), sent.data(), copied, default_stream));
  ASSERT_CUDA(driver().cuMemcpyDtoHAsync_per_thread(received.data(), memory.address(), copied,
                                                    default_stream));
  ASSERT_CUDA(driver().cuStreamSynchronize(per_thread_stream));

  EXPECT_TRUE(has_pattern(received.data(), copied, 7));
}

TEST_F(LinearCopies, OddOffsetsAndLengthsAreExact) {
  const GivenBlocking memory{4 * KiB};
  ASSERT_CUDA(driver().cuMemsetD8(memory.address(), 0xAA, 4 * KiB));
  const char text[] = "odd";

  ASSERT_CUDA(driver().cuMemcpyHtoD(memory.address() + 13, text, 3));

  const std::vector<std::byte> all = read(memory.address(), 32);
  EXPECT_EQ(all[12], std::byte{0xAA});
  EXPECT_EQ(std::memcmp(all.data() + 13, text, 3), 0);
  EXPECT_EQ(all[16], std::byte{0xAA});
}

TEST_F(LinearCopies, ACopyOfNothingSucceeds) {
  const GivenStream stream;
  const GivenBlocking memory{4 * KiB};
  std::uint32_t host = 5;

  EXPECT_CUDA(driver().cuMemcpyHtoD(memory.address(), &host, 0));
  EXPECT_CUDA(driver().cuMemcpyDtoH(&host, memory.address(), 0));
  EXPECT_CUDA(driver().cuMemcpyDtoD(memory.address(), memory.address() + 64, 0));
  EXPECT_CUDA(driver().cuMemcpyHtoDAsync(memory.address(), &host, 0, stream));
  EXPECT_CUDA(driver().cuMemcpyDtoHAsync(&host, memory.address(), 0, stream));
  EXPECT_CUDA(driver().cuMemcpyDtoDAsync(memory.address(), memory.address() + 64, 0, stream));
  EXPECT_EQ(host, 5u);
}

TEST_F(LinearCopies, APageableSourceMayChangeAsSoonAsTheCallReturns) {
  const GivenStream stream;
  const GivenBlocking memory{copied};
  std::vector<std::byte> source = host_pattern(8);

  ASSERT_CUDA(driver().cuMemcpyHtoDAsync(memory.address(), source.data(), copied, stream));
  std::memset(source.data(), 0xFF, copied);

  ASSERT_CUDA(driver().cuStreamSynchronize(stream));
  expect_pattern(memory.address(), copied, 8);
}

TEST_F(LinearCopies, APageableSourceMayChangeEvenBehindSlowWork) {
  const GivenStream stream;
  const GivenBlocking memory{4 * KiB};
  std::uint32_t source = 1;
  SlowWork work{kernels(), stream};

  // The call may wait for the stream or copy its source: both are legal.
  CallElsewhere copy_and_change{[&] {
    const CUresult answer = driver().cuMemcpyHtoDAsync(memory.address(), &source, 4, stream);
    source = 2;
    return answer;
  }};
  (void)copy_and_change.waits();
  work.end();

  ASSERT_CUDA(copy_and_change.answer());
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));
  EXPECT_EQ(read_word(memory.address()), 1u);
}

TEST_F(LinearCopies, APinnedSourceIsReadWhenTheStreamGetsThere) {
  const GivenStream stream;
  const GivenBlocking memory{4 * KiB};
  PinnedWords source{1};
  source.data()[0] = 1;
  SlowWork work{kernels(), stream};

  ASSERT_CUDA(driver().cuMemcpyHtoDAsync(memory.address(), source.data(), 4, stream));
  source.data()[0] = 2;
  work.end();

  ASSERT_CUDA(driver().cuStreamSynchronize(stream));
  EXPECT_EQ(read_word(memory.address()), 2u);
}

TEST_F(LinearCopies, AnAsynchronousCopyToPageableMemoryIsDoneWhenItReturns) {
  const GivenStream stream;
  const GivenBlocking memory{copied};
  std::vector<std::byte> received(copied);
  fill_pattern(memory.address(), copied, 9);

  ASSERT_CUDA(driver().cuMemcpyDtoHAsync(received.data(), memory.address(), copied, stream));

  EXPECT_TRUE(has_pattern(received.data(), copied, 9));
}

TEST_F(LinearCopies, AnAsynchronousCopyToPageableMemoryWaitsForTheStream) {
  const GivenStream stream;
  const GivenBlocking memory{4 * KiB};
  std::uint32_t seen = 0;
  write_word(memory.address(), 3);
  SlowWork work{kernels(), stream};

  CallElsewhere copy{
      [&] { return driver().cuMemcpyDtoHAsync(&seen, memory.address(), 4, stream); }};

  EXPECT_TRUE(copy.waits());
  work.end();
  ASSERT_CUDA(copy.answer());
  EXPECT_EQ(seen, 3u);
}

TEST_F(LinearCopies, AnAsynchronousCopyToPinnedMemoryDoesNotWait) {
  const GivenStream stream;
  const GivenBlocking memory{4 * KiB};
  PinnedWords received{1};
  SlowWork work{kernels(), stream};

  EXPECT_CUDA(driver().cuMemcpyDtoHAsync(received.data(), memory.address(), 4, stream));

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(stream));
  work.end();
}

TEST_F(LinearCopies, ABlockingCopyToTheHostIsDoneWhenItReturns) {
  const GivenBlocking memory{copied};
  std::vector<std::byte> received(copied);
  ASSERT_CUDA(driver().cuMemsetD8(memory.address(), 0x5A, copied));

  ASSERT_CUDA(driver().cuMemcpyDtoH(received.data(), memory.address(), copied));

  EXPECT_EQ(received.front(), std::byte{0x5A});
  EXPECT_EQ(received.back(), std::byte{0x5A});
}

TEST_F(LinearCopies, HostToHostByTheGenericCopy) {
  const std::vector<std::byte> from = host_pattern(10);
  std::vector<std::byte> to(copied);

  ASSERT_CUDA(driver().cuMemcpy(as_address(to.data()), as_address(from.data()), copied));
  ASSERT_CUDA(synchronize());

  EXPECT_TRUE(has_pattern(to.data(), copied, 10));
}

}  // namespace
}  // namespace cuvmm::test
