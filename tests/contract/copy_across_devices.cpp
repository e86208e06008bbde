// SPDX-License-Identifier: Apache-2.0
// Plain copies that name blocking memory of another device, without peer access: they are work of
// the caller's stream.
#include "streams_support.hpp"

namespace cuvmm::test {
namespace {

constexpr Size copied = 64 * KiB;

// `memory` and `more` lie on device 0; device 1 is current, with memory of its own.
class CopyAcrossDevices : public DriverContract {
 protected:
  void SetUp() override {
    DriverContract::SetUp();
    NEEDS_DEVICES(2);
    memory.emplace(copied);
    more.emplace(copied);
    its_context = primary();
    GIVEN(driver().cuMemsetD32(memory->address(), 7, copied / 4));
    GIVEN(driver().cuMemsetD32(more->address(), 9, copied / 4));
    GIVEN(synchronize());
    here.emplace(1);
    own.emplace(copied);
    GIVEN(driver().cuMemsetD32(own->address(), 5, copied / 4));
    GIVEN(synchronize());
    kernels_here.emplace();
  }
  void TearDown() override {
    kernels_here.reset();
    own.reset();
    if (here) {
      here.reset();
      GIVEN(driver().cuCtxSetCurrent(primary()));
    }
    more.reset();
    memory.reset();
    DriverContract::TearDown();
  }

  std::uint32_t first_word_of(CUdeviceptr address) const {
    std::uint32_t word = 0;
    EXPECT_CUDA(driver().cuMemcpyDtoH(&word, address, sizeof word));
    return word;
  }

  static void run_and_destroy(CUgraph graph, CUstream stream) {
    CUgraphExec exec = nullptr;
    ASSERT_CUDA(driver().cuGraphInstantiateWithFlags(&exec, graph, 0));
    EXPECT_CUDA(driver().cuGraphLaunch(exec, stream));
    EXPECT_CUDA(driver().cuStreamSynchronize(stream));
    GIVEN(driver().cuGraphExecDestroy(exec));
    GIVEN(driver().cuGraphDestroy(graph));
  }

  std::optional<GivenBlocking> memory;
  std::optional<GivenBlocking> more;
  CUcontext its_context = nullptr;
  std::optional<PrimaryContext> here;
  std::optional<GivenBlocking> own;
  std::optional<Kernels> kernels_here;
  std::vector<std::uint32_t> host = std::vector<std::uint32_t>(copied / 4, 3);
};

TEST_F(CopyAcrossDevices, FromTheHostComesAfterTheCallersEarlierWork) {
  std::jthread opens;
  {
    SlowWork work{*kernels_here, legacy_stream};
    ASSERT_CUDA(driver().cuMemcpyDtoDAsync(own->address(), memory->address(), copied, nullptr));
    opens = std::jthread{[&] {
      std::this_thread::sleep_for(std::chrono::milliseconds{50});
      work.end();
    }};
    ASSERT_CUDA(driver().cuMemcpyHtoD(memory->address(), host.data(), copied));
    opens.join();
  }
  ASSERT_CUDA(synchronize());
  EXPECT_EQ(first_word_of(own->address()), 7U) << "copied before the host's came";
  EXPECT_EQ(first_word_of(memory->address()), 3U);
}

TEST_F(CopyAcrossDevices, ToTheHostComesAfterTheCallersEarlierWork) {
  for (const unsigned flags : {CU_STREAM_DEFAULT, CU_STREAM_NON_BLOCKING}) {
    const GivenStream stream{flags};
    const CUstream before = flags == CU_STREAM_DEFAULT ? stream.get() : legacy_stream;
    SlowWork work{*kernels_here, before};
    ASSERT_CUDA(driver().cuMemcpyDtoDAsync(memory->address(), own->address(), copied, before));
    std::jthread opens{[&] {
      std::this_thread::sleep_for(std::chrono::milliseconds{50});
      work.end();
    }};
    EXPECT_EQ(first_word_of(memory->address()), 5U);
  }
}

// Pageable memory is staged.
TEST_F(CopyAcrossDevices, AnAsynchronousOneDoesNotWaitForItsStream) {
  const GivenStream stream;
  {
    SlowWork work{*kernels_here, stream};
    ASSERT_CUDA(driver().cuMemcpyHtoDAsync(memory->address(), host.data(), 1 * KiB, stream));
    EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(stream));
  }
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));
  EXPECT_EQ(first_word_of(memory->address()), 3U);
}

TEST_F(CopyAcrossDevices, BothEndsMayLieOnTheOtherDevice) {
  const GivenStream stream;
  EXPECT_CUDA(driver().cuMemcpyDtoD(more->address(), memory->address(), copied));
  EXPECT_CUDA(synchronize());
  EXPECT_EQ(first_word_of(more->address()), 7U);
  EXPECT_CUDA(driver().cuMemcpyAsync(memory->address(), own->address(), copied, stream));
  EXPECT_CUDA(driver().cuMemcpyDtoDAsync(more->address(), memory->address(), copied, stream));
  EXPECT_CUDA(driver().cuStreamSynchronize(stream));
  EXPECT_EQ(first_word_of(more->address()), 5U);
}

// It belongs to no context.
TEST_F(CopyAcrossDevices, TheOtherEndMayBeMemoryOfAPool) {
  const GivenStream stream;
  CUdeviceptr pooled = 0;
  ASSERT_CUDA(driver().cuMemAllocAsync(&pooled, copied, stream));
  EXPECT_CUDA(driver().cuMemcpyDtoDAsync(pooled, memory->address(), copied, stream));
  EXPECT_CUDA(driver().cuMemcpyAsync(more->address(), pooled, copied, stream));
  EXPECT_CUDA(driver().cuStreamSynchronize(stream));
  EXPECT_EQ(first_word_of(more->address()), 7U);
  EXPECT_CUDA(driver().cuMemFreeAsync(pooled, stream));
}

TEST_F(CopyAcrossDevices, ItsStreamMayBeOfTheOtherDevice) {
  GIVEN(driver().cuCtxPushCurrent(its_context));
  const GivenStream stream;
  CUcontext left = nullptr;
  GIVEN(driver().cuCtxPopCurrent(&left));
  std::vector<std::uint32_t> back(copied / 4);
  EXPECT_CUDA(driver().cuMemcpyHtoDAsync(memory->address(), host.data(), copied, stream));
  EXPECT_CUDA(driver().cuMemcpyDtoDAsync(own->address(), memory->address(), copied, stream));
  EXPECT_CUDA(driver().cuMemcpyDtoHAsync(back.data(), memory->address(), copied, stream));
  EXPECT_CUDA(driver().cuStreamSynchronize(stream));
  EXPECT_EQ(back, host);
  EXPECT_EQ(first_word_of(own->address()), 3U);
}

TEST_F(CopyAcrossDevices, ASetOfNoBytesIsAccepted) {
  EXPECT_CUDA(driver().cuMemsetD8(memory->address(), 1, 0));
  EXPECT_CUDA(driver().cuMemsetD32Async(memory->address(), 1, 0, legacy_stream));
}

TEST_F(CopyAcrossDevices, RowsAreCopiedToo) {
  CUDA_MEMCPY2D rows{};
  rows.srcMemoryType = CU_MEMORYTYPE_HOST;
  rows.srcHost = host.data();
  rows.srcPitch = 512;
  rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  rows.dstDevice = memory->address();
  rows.dstPitch = 512;
  rows.WidthInBytes = 256;
  rows.Height = 16;
  EXPECT_CUDA(driver().cuMemcpy2D(&rows));
  EXPECT_EQ(first_word_of(memory->address() + 512), 3U);
  rows.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  rows.srcDevice = own->address();
  EXPECT_CUDA(driver().cuMemcpy2D(&rows));
  EXPECT_CUDA(synchronize());
  EXPECT_EQ(first_word_of(memory->address() + 512), 5U);
}

TEST_F(CopyAcrossDevices, ACapturedOneIsMadeWhenItsGraphIsLaunched) {
  const GivenStream stream;
  GIVEN(driver().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_CUDA(driver().cuMemcpyDtoDAsync(memory->address(), own->address(), copied, stream));
  EXPECT_CUDA(driver().cuMemcpyDtoDAsync(more->address(), memory->address(), copied, stream));
  CUgraph graph = nullptr;
  ASSERT_CUDA(driver().cuStreamEndCapture(stream, &graph));
  EXPECT_EQ(first_word_of(more->address()), 9U);
  run_and_destroy(graph, stream);
  EXPECT_EQ(first_word_of(more->address()), 5U);
}

TEST_F(CopyAcrossDevices, ANodeOfAGraphMayBeOne) {
  const GivenStream stream;
  CUgraph graph = nullptr;
  GIVEN(driver().cuGraphCreate(&graph, 0));
  const CUDA_MEMCPY3D copy = linear_copy(memory->address(), own->address(), copied);
  CUgraphNode node = nullptr;
  EXPECT_CUDA(driver().cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &copy, here->get()));
  run_and_destroy(graph, stream);
  EXPECT_EQ(first_word_of(own->address()), 7U);
}

// The node's context is not the current one.
TEST_F(CopyAcrossDevices, ANodeOfAnyKindMayBeOneOfAnotherContext) {
  NEEDS_CALL(cuGraphAddNode_v2);
  const GivenStream stream;
  CUgraph graph = nullptr;
  GIVEN(driver().cuGraphCreate(&graph, 0));
  CUgraphNodeParams added{};
  added.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  added.memcpy.copyCtx = its_context;
  added.memcpy.copyParams = linear_copy(own->address(), memory->address(), copied);
  CUgraphNode node = nullptr;
  EXPECT_CUDA(driver().cuGraphAddNode(&node, graph, nullptr, nullptr, 0, &added));
  run_and_destroy(graph, stream);
  EXPECT_EQ(first_word_of(memory->address()), 5U);
}

TEST_F(CopyAcrossDevices, OthersUsesOfTheMemoryStayRefused) {
  EXPECT_CUDA(driver().cuMemcpyDtoD(own->address(), memory->address(), copied));
  EXPECT_CUDA(synchronize());
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemsetD32(memory->address(), 1, 1));
  CUdeviceptr here_too = 0;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuPointerGetAttribute(&here_too, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                               memory->address()));
}

}  // namespace
}  // namespace cuvmm::test
