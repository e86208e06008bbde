// SPDX-License-Identifier: Apache-2.0
// Which memory copies and sets may name: the call itself is refused, before any work is done. All
// measured on one or two H200s.
#include "streams_support.hpp"

namespace cuvmm::test {
namespace {

constexpr Size accessed = 4 * KiB;
constexpr auto none = CU_MEM_ACCESS_FLAGS_PROT_NONE;
constexpr auto read_only = CU_MEM_ACCESS_FLAGS_PROT_READ;

class CopyAccess : public DriverContract {
 protected:
  std::vector<std::byte> host_ = std::vector<std::byte>(accessed);
};

TEST_F(CopyAccess, ReadOnlyMemoryIsASourceButNoTarget) {
  GivenMapped mapped = given_mapped(1, granularity());
  const GivenBlocking other{accessed};
  GIVEN(set_access(mapped.address(), granularity(), read_only));

  EXPECT_CUDA(driver().cuMemcpyDtoH(host_.data(), mapped.address(), accessed));
  EXPECT_CUDA(driver().cuMemcpyDtoD(other.address(), mapped.address(), accessed));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuMemcpyHtoD(mapped.address(), host_.data(), accessed));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuMemcpyDtoD(mapped.address(), other.address(), accessed));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemsetD8(mapped.address(), 1, accessed));
  EXPECT_CUDA(synchronize());
}

TEST_F(CopyAccess, MemoryWithoutAccessIsNeitherSourceNorTarget) {
  GivenMapped mapped = given_mapped(1, granularity());
  const GivenStream stream;
  GIVEN(set_access(mapped.address(), granularity(), none));

  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuMemcpyDtoH(host_.data(), mapped.address(), accessed));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuMemcpyHtoDAsync(mapped.address(), host_.data(), accessed, stream));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuMemsetD32Async(mapped.address(), 1, 1, stream));
  EXPECT_CUDA(synchronize());
}

TEST_F(CopyAccess, PageableMemoryIsNoDeviceMemory) {
  const GivenBlocking memory{accessed};
  const auto pageable = reinterpret_cast<CUdeviceptr>(host_.data());

  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuMemcpyDtoD(memory.address(), pageable, accessed));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemcpyDtoH(host_.data(), pageable, accessed));
  EXPECT_CUDA(driver().cuMemcpy(memory.address(), pageable, accessed));
}

TEST_F(CopyAccess, PinnedMemoryIsDeviceMemoryToo) {
  const GivenBlocking memory{accessed};
  PinnedWords pinned{accessed / 4};

  EXPECT_CUDA(driver().cuMemcpyDtoD(memory.address(), reinterpret_cast<CUdeviceptr>(pinned.data()),
                                    accessed));
}

TEST_F(CopyAccess, ACopyMayNotLeaveRegisteredMemory) {
  const GivenBlocking memory{accessed};
  void* const middle = host_.data() + accessed / 4;
  GIVEN(driver().cuMemHostRegister(middle, accessed / 4, 0));

  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuMemcpyHtoD(memory.address(), middle, accessed / 2));
  EXPECT_CUDA(driver().cuMemcpyHtoD(memory.address(), host_.data(), accessed));

  EXPECT_CUDA(driver().cuMemHostUnregister(middle));
}

TEST_F(CopyAccess, BlockingMemoryOfAnotherDeviceMayBeCopiedButNotSet) {
  NEEDS_DEVICES(2);
  const GivenBlocking there{accessed};
  const PrimaryContext here{1};
  const GivenBlocking own{accessed};

  EXPECT_CUDA(driver().cuMemcpyDtoD(own.address(), there.address(), accessed));
  EXPECT_CUDA(driver().cuMemcpyHtoD(there.address(), host_.data(), accessed));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemsetD8(there.address(), 1, accessed));
  EXPECT_CUDA(synchronize());
}

TEST_F(CopyAccess, PeerAccessEndsWithTheContextThatEnabledIt) {
  NEEDS_DEVICES(2);
  int can = 0;
  GIVEN(driver().cuDeviceCanAccessPeer(&can, device(1), device(0)));
  if (can == 0) GTEST_SKIP() << "device 1 cannot reach device 0";
  const GivenBlocking there{accessed};
  {
    OwnContext enabling{1};
    GIVEN(driver().cuCtxEnablePeerAccess(primary(), 0));
    EXPECT_CUDA(driver().cuMemsetD8(there.address(), 1, accessed));
    EXPECT_CUDA(synchronize());
    EXPECT_CUDA(enabling.destroy());
  }
  const PrimaryContext here{1};
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemsetD8(there.address(), 1, accessed));
  EXPECT_CUDA(synchronize());
}

TEST_F(CopyAccess, MappedMemoryOfAnotherDeviceNeedsAccessOrItsContext) {
  NEEDS_DEVICES(2);
  GivenMapped there = given_mapped(1, granularity());
  const CUcontext its_context = primary();
  const PrimaryContext here{1};
  const GivenBlocking own{accessed};

  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuMemcpyDtoD(own.address(), there.address(), accessed));
  EXPECT_CUDA(
      driver().cuMemcpyPeer(own.address(), here.get(), there.address(), its_context, accessed));
  EXPECT_CUDA(synchronize());
}

TEST_F(CopyAccess, PeerCopiesCannotBeCaptured) {
  const GivenBlocking memory{2 * accessed};
  const GivenStream stream;
  GIVEN(driver().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));

  EXPECT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                driver().cuMemcpyPeerAsync(memory.address(), primary(), memory.address() + accessed,
                                           primary(), accessed, stream));

  CUgraph graph = nullptr;
  EXPECT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, driver().cuStreamEndCapture(stream, &graph));
}

// Omitted and given pitches -----------------------------------------------------------------------

TEST_F(CopyAccess, AnOmittedPitchDefaultsToTheRowLength) {
  const GivenBlocking memory{accessed};
  for (std::size_t i = 0; i < accessed; ++i) host_[i] = static_cast<std::byte>(i);
  GIVEN(driver().cuMemcpyHtoD(memory.address(), host_.data(), 256));
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = memory.address();
  copy.srcXInBytes = 4;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = memory.address() + 1024;
  copy.dstPitch = 32;
  copy.WidthInBytes = 16;
  copy.Height = 2;

  ASSERT_CUDA(driver().cuMemcpy2D(&copy));

  const auto copied = read(memory.address() + 1024, 64);
  EXPECT_EQ(copied[0], std::byte{4});
  EXPECT_EQ(copied[32], std::byte{24}) << "rows of 4 + 16 bytes";
}

TEST_F(CopyAccess, AGivenPitchMustHoldARowEvenForASingleRow) {
  const GivenBlocking memory{accessed};
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = memory.address();
  copy.srcPitch = 50;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = memory.address() + 1024;
  copy.WidthInBytes = 100;
  copy.Height = 1;

  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemcpy2D(&copy));
}

// Arrays ------------------------------------------------------------------------------------------

TEST_F(CopyAccess, AnArrayKeepsItsRows) {
  CUarray array = nullptr;
  CUDA_ARRAY_DESCRIPTOR asked{};
  asked.Width = 64;
  asked.Height = 4;
  asked.Format = CU_AD_FORMAT_FLOAT;
  asked.NumChannels = 1;
  ASSERT_CUDA(driver().cuArrayCreate(&array, &asked));
  fill_host_pattern(host_.data(), 1024, 1);
  std::vector<std::byte> back(1024);
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = host_.data();
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = array;
  copy.WidthInBytes = 256;
  copy.Height = 4;
  ASSERT_CUDA(driver().cuMemcpy2D(&copy));
  copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.srcArray = array;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = back.data();
  ASSERT_CUDA(driver().cuMemcpy2D(&copy));
  EXPECT_TRUE(has_pattern(back.data(), back.size(), 1));

  EXPECT_CUDA(driver().cuMemcpyHtoA(array, 0, host_.data(), 256));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemcpyHtoA(array, 256, host_.data(), 256));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemcpyHtoA(array, 0, host_.data(), 1024));
  EXPECT_CUDA(driver().cuArrayDestroy(array));
}

}  // namespace
}  // namespace cuvmm::test
