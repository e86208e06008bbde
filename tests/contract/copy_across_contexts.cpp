// SPDX-License-Identifier: Apache-2.0
// Copies and sets on the legacy stream that name another context's blocking memory are ordered by
// the legacy streams of both contexts. On any other stream they are ordered by that stream alone.
#include "streams_support.hpp"

namespace cuvmm::test {
namespace {

constexpr Size bytes_of_block = 64 * KiB;
constexpr std::uint32_t old_value = 7;
constexpr std::uint32_t new_value = 9;

// The parameter names the owner's device; the owner has memory that holds `old_value`. The primary
// context of device 0 is current.
class CopyAcrossContexts : public DriverContract, public testing::WithParamInterface<int> {
 protected:
  void SetUp() override {
    DriverContract::SetUp();
    NEEDS_DEVICES(GetParam() + 1);
    own.emplace(bytes_of_block);
    GIVEN(driver().cuCtxCreate_v3020(&owner, 0, GetParam()));
    memory.emplace(bytes_of_block);
    GIVEN(set(old_value, legacy_stream));
    GIVEN(synchronize());
    kernels_of_owner.emplace();
    CUcontext popped = nullptr;
    GIVEN(driver().cuCtxPopCurrent(&popped));
  }
  void TearDown() override {
    if (owner != nullptr) {
      GIVEN(driver().cuCtxPushCurrent(owner));
      kernels_of_owner.reset();
      memory.reset();
      GIVEN(driver().cuCtxDestroy(owner));
    }
    own.reset();
    DriverContract::TearDown();
  }

  CUresult set(std::uint32_t value, CUstream stream) {
    return driver().cuMemsetD32Async(memory->address(), value, bytes_of_block / 4, stream);
  }
  // The owner sets its memory to `new_value` once its stream is released.
  void begin_work_of_owner(CUstream stream) {
    const Current current{owner};
    work_of_owner.emplace(*kernels_of_owner, stream);
    GIVEN(set(new_value, stream));
  }
  void end_work_of_owner() {
    const Current current{owner};
    work_of_owner.reset();
    EXPECT_CUDA(synchronize());
  }
  std::uint32_t word_of(CUdeviceptr address) const {
    std::uint32_t word = 0;
    EXPECT_CUDA(driver().cuMemcpyDtoH(&word, address, sizeof word));
    return word;
  }

  std::optional<GivenBlocking> own;
  std::optional<GivenBlocking> memory;
  CUcontext owner = nullptr;
  std::optional<Kernels> kernels_of_owner;
  std::optional<SlowWork> work_of_owner;
  std::vector<std::uint32_t> host = std::vector<std::uint32_t>(bytes_of_block / 4, 3);
};

INSTANTIATE_TEST_SUITE_P(OnDevice, CopyAcrossContexts, testing::Values(0, 1));

TEST_P(CopyAcrossContexts, ToTheHostComesAfterTheOwnersWork) {
  begin_work_of_owner(legacy_stream);
  std::uint32_t word = 0;
  CallElsewhere copy{[&] { return driver().cuMemcpyDtoH(&word, memory->address(), sizeof word); }};
  EXPECT_TRUE(copy.waits());
  work_of_owner->end();
  EXPECT_ANSWER(CUDA_SUCCESS, copy.answer());
  EXPECT_EQ(word, new_value);
  end_work_of_owner();
}

TEST_P(CopyAcrossContexts, FromTheHostComesAfterTheOwnersWork) {
  begin_work_of_owner(legacy_stream);
  CallElsewhere copy{
      [&] { return driver().cuMemcpyHtoD(memory->address(), host.data(), bytes_of_block); }};
  EXPECT_TRUE(copy.waits());
  work_of_owner->end();
  EXPECT_ANSWER(CUDA_SUCCESS, copy.answer());
  end_work_of_owner();
  EXPECT_EQ(word_of(memory->address()), 3U);
}

TEST_P(CopyAcrossContexts, OnTheLegacyStreamComesAfterTheWorkOfTheOwnersBlockingStreams) {
  std::optional<GivenStream> stream;
  {
    const Current current{owner};
    stream.emplace(CU_STREAM_DEFAULT);
  }
  begin_work_of_owner(*stream);
  EXPECT_CUDA(
      driver().cuMemcpyDtoDAsync(own->address(), memory->address(), bytes_of_block, legacy_stream));
  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(legacy_stream));
  work_of_owner->end();
  EXPECT_EQ(word_of(own->address()), new_value);
  end_work_of_owner();
  const Current current{owner};
  stream.reset();
}

TEST_P(CopyAcrossContexts, OnTheLegacyStreamComesBeforeTheOwnersLaterWork) {
  Kernels kernels_here;
  std::optional<SlowWork> work{std::in_place, kernels_here, legacy_stream};
  EXPECT_CUDA(
      driver().cuMemcpyDtoDAsync(own->address(), memory->address(), bytes_of_block, legacy_stream));
  {
    const Current current{owner};
    EXPECT_CUDA(set(new_value, legacy_stream));
    EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(legacy_stream));
  }
  work.reset();
  EXPECT_EQ(word_of(own->address()), old_value);
  EXPECT_EQ(word_of(memory->address()), new_value);
}

TEST_P(CopyAcrossContexts, RowsOnTheLegacyStreamComeAfterTheOwnersWorkToo) {
  begin_work_of_owner(legacy_stream);
  CUDA_MEMCPY2D rows{};
  rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  rows.srcDevice = memory->address();
  rows.dstDevice = own->address();
  rows.srcPitch = rows.dstPitch = 512;
  rows.WidthInBytes = 256;
  rows.Height = 16;
  EXPECT_CUDA(driver().cuMemcpy2DAsync(&rows, legacy_stream));
  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(legacy_stream));
  work_of_owner->end();
  EXPECT_EQ(word_of(own->address()), new_value);
  end_work_of_owner();
}

TEST_P(CopyAcrossContexts, ASetOnTheLegacyStreamComesAfterTheOwnersWorkToo) {
  if (GetParam() != 0) GTEST_SKIP() << "a set reaches no other device";
  begin_work_of_owner(legacy_stream);
  constexpr std::uint32_t set_value = 5;
  EXPECT_CUDA(set(set_value, legacy_stream));
  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(legacy_stream));
  work_of_owner->end();
  EXPECT_CUDA(synchronize());
  end_work_of_owner();
  EXPECT_EQ(word_of(memory->address()), set_value);
}

TEST_P(CopyAcrossContexts, OfNothingOnTheLegacyStreamWaitsForNothing) {
  begin_work_of_owner(legacy_stream);
  EXPECT_CUDA(driver().cuMemcpyDtoDAsync(own->address(), memory->address(), 0, legacy_stream));
  EXPECT_CUDA(driver().cuMemcpyDtoHAsync(host.data(), memory->address(), 0, legacy_stream));
  CUDA_MEMCPY2D no_rows{};
  no_rows.srcMemoryType = no_rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  no_rows.srcDevice = memory->address();
  no_rows.dstDevice = own->address();
  no_rows.srcPitch = no_rows.dstPitch = 512;
  no_rows.WidthInBytes = 256;
  EXPECT_CUDA(driver().cuMemcpy2DAsync(&no_rows, legacy_stream));
  EXPECT_CUDA(driver().cuMemsetD32Async(own->address(), 1, 1, legacy_stream));
  EXPECT_CUDA(driver().cuStreamSynchronize(legacy_stream));
  work_of_owner->end();
  end_work_of_owner();
}

TEST_P(CopyAcrossContexts, OnOtherStreamsDoesNotWaitForTheOwnersWork) {
  const GivenStream blocking{CU_STREAM_DEFAULT};
  const GivenStream non_blocking;
  begin_work_of_owner(legacy_stream);
  for (const CUstream stream : {blocking.get(), non_blocking.get(), per_thread_stream}) {
    EXPECT_CUDA(
        driver().cuMemcpyDtoDAsync(own->address(), memory->address(), bytes_of_block, stream));
    EXPECT_CUDA(driver().cuMemcpyHtoDAsync(memory->address() + bytes_of_block / 2, host.data(),
                                           1 * KiB, stream));
    EXPECT_CUDA(driver().cuStreamSynchronize(stream));
  }
  end_work_of_owner();
}

TEST_P(CopyAcrossContexts, DoesNotWaitForTheOwnersNonBlockingStreams) {
  std::optional<GivenStream> stream;
  {
    const Current current{owner};
    stream.emplace(CU_STREAM_NON_BLOCKING);
  }
  begin_work_of_owner(*stream);
  EXPECT_EQ(word_of(memory->address()), old_value);
  EXPECT_CUDA(driver().cuMemcpyDtoD(own->address(), memory->address(), bytes_of_block));
  EXPECT_CUDA(synchronize());
  end_work_of_owner();
  const Current current{owner};
  stream.reset();
}

}  // namespace
}  // namespace cuvmm::test
