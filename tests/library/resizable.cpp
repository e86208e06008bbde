// SPDX-License-Identifier: Apache-2.0
// Buffers that grow and shrink in place, through the C and the C++ API. The driver's own functions
// write and read the contents; the program looks them up as any program does.
#include <gtest/gtest.h>

#include <atomic>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "cuvmm/cuvmm.h"
#include "cuvmm/cuvmm.hpp"
#include "library/driver_calls.hpp"
#include "library/surroundings.hpp"

namespace cuvmm::test {
namespace {

class Resizables : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto info = device_info(0);
    ASSERT_TRUE(info.ok()) << info.error().message();
    granule_ = info->granule;
    ASSERT_EQ(CALL(cuDevicePrimaryCtxRetain)(&context_, 0), CUDA_SUCCESS);
    ASSERT_EQ(CALL(cuCtxSetCurrent)(context_), CUDA_SUCCESS);
    ASSERT_EQ(CALL(cuStreamCreate)(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  }
  void TearDown() override {
    CALL(cuStreamDestroy)(stream_);
    CALL(cuDevicePrimaryCtxRelease)(0);
  }

  static ResizableBuffer given(std::uint64_t most) {
    auto buffer = ResizableBuffer::reserve(0, most);
    EXPECT_TRUE(buffer.ok()) << buffer.error().message();
    return std::move(*buffer);
  }
  static void write(std::uint64_t address, std::uint64_t size, unsigned char value) {
    const std::vector<unsigned char> bytes(size, value);
    ASSERT_EQ(CALL(cuMemcpyHtoD)(address, bytes.data(), size), CUDA_SUCCESS);
  }
  static void expect(std::uint64_t address, std::uint64_t size, unsigned char value) {
    std::vector<unsigned char> bytes(size);
    ASSERT_EQ(CALL(cuMemcpyDtoH)(bytes.data(), address, size), CUDA_SUCCESS);
    EXPECT_EQ(bytes, std::vector<unsigned char>(size, value));
  }
  static std::uint64_t physical(const ResizableBuffer& buffer) {
    return buffer.info()->physical_bytes;
  }

  std::uint64_t granule_ = 0;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
};

TEST_F(Resizables, GrowAndShrinkInPlaceAndKeepTheirContents) {
  ResizableBuffer buffer = given(64 * MiB);
  EXPECT_EQ(physical(buffer), 0u);
  ASSERT_TRUE(buffer.resize(4 * MiB).ok());
  const std::uint64_t address = buffer.address();
  write(address, 4 * MiB, 1);
  for (const std::uint64_t size : {8 * MiB, 20 * MiB, 64 * MiB}) {
    ASSERT_TRUE(buffer.resize(size).ok());
    EXPECT_EQ(physical(buffer), size);
    write(address + size - MiB, MiB, 2);
  }
  expect(address, 4 * MiB, 1);
  ASSERT_TRUE(buffer.resize(8 * MiB).ok());
  EXPECT_EQ(physical(buffer), 8 * MiB);
  EXPECT_EQ(buffer.address(), address);
  expect(address, 4 * MiB, 1);
  EXPECT_EQ(buffer.info()->size, 8 * MiB);
  EXPECT_EQ(buffer.info()->most, 64 * MiB);
}

TEST_F(Resizables, HaveNoAccessBeyondTheirSize) {
  ResizableBuffer buffer = given(16 * MiB);
  ASSERT_TRUE(buffer.resize(granule_).ok());
  unsigned char byte = 0;
  EXPECT_NE(CALL(cuMemcpyDtoH)(&byte, buffer.address() + granule_, 1), CUDA_SUCCESS);
}

TEST_F(Resizables, RefuseInvalidSizesAndStayUnchanged) {
  ResizableBuffer buffer = given(16 * MiB);
  ASSERT_TRUE(buffer.resize(4 * MiB).ok());
  write(buffer.address(), 4 * MiB, 7);
  const auto beyond = buffer.resize(16 * MiB + 1);
  ASSERT_FALSE(beyond.ok());
  EXPECT_EQ(beyond.error().kind(), ErrorKind::InvalidArgument);
  EXPECT_EQ(buffer.info()->size, 4 * MiB);
  expect(buffer.address(), 4 * MiB, 7);

  const auto device = device_info(0);
  const std::uint64_t twice_the_device = 2 * (device->memory / granule_ * granule_);
  ResizableBuffer huge = given(twice_the_device);
  ASSERT_TRUE(huge.resize(4 * MiB).ok());
  const auto too_much = huge.resize(twice_the_device);
  ASSERT_FALSE(too_much.ok());
  EXPECT_EQ(too_much.error().kind(), ErrorKind::OutOfPhysicalMemory);
  EXPECT_EQ(physical(huge), 4 * MiB);
  const cuvmm_error& details = too_much.error().details();
  EXPECT_EQ(details.requested, twice_the_device - 4 * MiB);
  EXPECT_GT(details.available, 0u);
  EXPECT_LT(details.available, device->memory);
  const std::string message = too_much.error().message();
  EXPECT_EQ(message.find("grow a resizable buffer: out of memory"), 0u) << message;
  EXPECT_EQ(message.find("unlimited"), std::string::npos) << message;
}

TEST_F(Resizables, AreFoundByTheirFirstByteAlone) {
  EXPECT_EQ(cuvmm_resize(4096, 1, nullptr), CUVMM_ERROR_NOT_FOUND);
  EXPECT_EQ(cuvmm_release_resizable(0, nullptr), CUVMM_ERROR_NOT_FOUND);
  std::uint64_t address = 0;
  ASSERT_EQ(cuvmm_reserve_resizable(0, MiB, &address, nullptr), CUVMM_OK);
  EXPECT_EQ(cuvmm_resize(address + 512, 1, nullptr), CUVMM_ERROR_NOT_FOUND);
  EXPECT_EQ(cuvmm_release_resizable(address, nullptr), CUVMM_OK);
  EXPECT_EQ(cuvmm_release_resizable(address, nullptr), CUVMM_ERROR_NOT_FOUND);
  EXPECT_EQ(cuvmm_reserve_resizable(0, 0, &address, nullptr), CUVMM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(cuvmm_reserve_resizable(0, MiB, nullptr, nullptr), CUVMM_ERROR_INVALID_ARGUMENT);
}

// A host function that blocks the stream until the test releases it.
struct Held {
  static void wait(void* flag) {
    while (!static_cast<std::atomic<bool>*>(flag)->load()) std::this_thread::yield();
  }
  std::atomic<bool> go{false};
};

TEST_F(Resizables, ShrinkAndEndOnAThreadWithoutAContext) {
  std::thread without_context{[&] {
    ResizableBuffer buffer = given(8 * granule_);
    EXPECT_TRUE(buffer.resize(granule_).ok());
    EXPECT_TRUE(buffer.resize(4 * granule_).ok());
    const auto shrunk = buffer.resize(granule_);
    EXPECT_TRUE(shrunk.ok()) << shrunk.error().message();
    EXPECT_EQ(physical(buffer), granule_);
    const std::uint64_t address = buffer.address();
    { const auto ended = std::move(buffer); }
    cuvmm_resizable_info info;
    EXPECT_EQ(cuvmm_get_resizable_info(address, &info, nullptr), CUVMM_ERROR_NOT_FOUND);
  }};
  without_context.join();
}

TEST_F(Resizables, ResizeInStreamOrderWithoutWaiting) {
  ResizableBuffer buffer = given(16 * MiB);
  ASSERT_TRUE(buffer.resize(4 * MiB, stream_).ok());
  ASSERT_TRUE(buffer.resize(16 * MiB, stream_).ok());  // with a chunk that can be released whole
  Held held;
  ASSERT_EQ(CALL(cuLaunchHostFunc)(stream_, &Held::wait, &held.go), CUDA_SUCCESS);
  ASSERT_EQ(CALL(cuMemsetD8Async)(buffer.address() + 8 * MiB, 3, 8 * MiB, stream_), CUDA_SUCCESS);
  ASSERT_TRUE(buffer.resize(4 * MiB, stream_).ok());
  EXPECT_EQ(physical(buffer), 16 * MiB) << "the stream still uses it";
  held.go = true;
  ASSERT_EQ(CALL(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
  ASSERT_TRUE(buffer.resize(4 * MiB, stream_).ok());
  EXPECT_EQ(physical(buffer), 4 * MiB);
}

// The resize cannot ask in the ordinary way how far the stream is, and must not break the capture.
TEST_F(Resizables, ShrinkWhileAnotherStreamIsCaptured) {
  ResizableBuffer buffer = given(16 * MiB);
  ASSERT_TRUE(buffer.resize(4 * MiB).ok());
  ASSERT_TRUE(buffer.resize(16 * MiB).ok());
  CUstream captured = nullptr;
  ASSERT_EQ(CALL(cuStreamCreate)(&captured, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  Held held;
  ASSERT_EQ(CALL(cuLaunchHostFunc)(stream_, &Held::wait, &held.go), CUDA_SUCCESS);
  ASSERT_EQ(CALL(cuMemsetD8Async)(buffer.address() + 8 * MiB, 3, 8 * MiB, stream_), CUDA_SUCCESS);
  ASSERT_EQ(CALL(cuStreamBeginCapture)(captured, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  EXPECT_TRUE(buffer.resize(4 * MiB, stream_).ok());
  EXPECT_TRUE(buffer.resize(3 * MiB, stream_).ok());
  EXPECT_EQ(physical(buffer), 16 * MiB) << "the stream still uses it";
  CUgraph graph = nullptr;
  EXPECT_EQ(CALL(cuStreamEndCapture)(captured, &graph), CUDA_SUCCESS);
  if (graph != nullptr) CALL(cuGraphDestroy)(graph);
  held.go = true;
  EXPECT_EQ(CALL(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
  ASSERT_TRUE(buffer.resize(3 * MiB).ok());
  EXPECT_EQ(physical(buffer), 4 * MiB);
  EXPECT_EQ(CALL(cuStreamDestroy)(captured), CUDA_SUCCESS);
}

// The plain shrink waits for the work of its own context. Work of another context still uses the
// memory, although the stream of the first pending shrink is done.
TEST_F(Resizables, ShrinkOnlyOnceAllPendingShrinksAreDone) {
  ResizableBuffer buffer = given(16 * MiB);
  for (const std::uint64_t size : {4 * MiB, 8 * MiB, 12 * MiB, 16 * MiB}) {
    ASSERT_TRUE(buffer.resize(size).ok());  // chunks that can be released one by one
  }
  CUcontext other = nullptr;
  CUctxCreateParams parameters{};
  ASSERT_EQ(CALL(cuCtxCreate)(&other, &parameters, 0, 0), CUDA_SUCCESS);
  CUstream first = nullptr;
  CUstream second = nullptr;
  ASSERT_EQ(CALL(cuStreamCreate)(&first, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(CALL(cuStreamCreate)(&second, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  Held held;
  Held held_longer;
  EXPECT_EQ(CALL(cuLaunchHostFunc)(first, &Held::wait, &held.go), CUDA_SUCCESS);
  EXPECT_EQ(CALL(cuLaunchHostFunc)(second, &Held::wait, &held_longer.go), CUDA_SUCCESS);
  EXPECT_EQ(CALL(cuMemsetD8Async)(buffer.address() + 9 * MiB, 3, MiB, second), CUDA_SUCCESS);
  EXPECT_TRUE(buffer.resize(12 * MiB, first).ok());
  EXPECT_TRUE(buffer.resize(8 * MiB, second).ok());
  EXPECT_EQ(CALL(cuCtxSetCurrent)(context_), CUDA_SUCCESS);
  EXPECT_TRUE(buffer.resize(4 * MiB).ok());
  held.go = true;
  EXPECT_EQ(CALL(cuCtxSetCurrent)(other), CUDA_SUCCESS);
  EXPECT_EQ(CALL(cuStreamSynchronize)(first), CUDA_SUCCESS);
  EXPECT_TRUE(buffer.resize(4 * MiB, first).ok());
  EXPECT_EQ(physical(buffer), 12 * MiB) << "the second stream still uses it";
  held_longer.go = true;
  EXPECT_EQ(CALL(cuCtxSynchronize)(), CUDA_SUCCESS);
  EXPECT_EQ(CALL(cuCtxSetCurrent)(context_), CUDA_SUCCESS);
  EXPECT_TRUE(buffer.resize(4 * MiB).ok());
  EXPECT_EQ(physical(buffer), 4 * MiB);
  EXPECT_EQ(CALL(cuCtxDestroy)(other), CUDA_SUCCESS);
}

TEST_F(Resizables, KeepMemoryThatIsNeededAgain) {
  ResizableBuffer buffer = given(16 * MiB);
  ASSERT_TRUE(buffer.resize(16 * MiB).ok());
  Held held;
  ASSERT_EQ(CALL(cuLaunchHostFunc)(stream_, &Held::wait, &held.go), CUDA_SUCCESS);
  ASSERT_TRUE(buffer.resize(0, stream_).ok());
  ASSERT_TRUE(buffer.resize(16 * MiB, stream_).ok());
  ASSERT_EQ(CALL(cuMemsetD8Async)(buffer.address(), 9, 16 * MiB, stream_), CUDA_SUCCESS);
  held.go = true;
  ASSERT_EQ(CALL(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
  ASSERT_TRUE(buffer.resize(16 * MiB).ok());
  EXPECT_EQ(physical(buffer), 16 * MiB);
  expect(buffer.address(), 16 * MiB, 9);
}

TEST_F(Resizables, AreReleasedInTheOrderOfAStream) {
  const std::uint64_t before = device_info(0)->physical_in_use;
  Held held;
  {
    ResizableBuffer buffer = given(16 * MiB);
    ASSERT_TRUE(buffer.resize(16 * MiB).ok());
    ASSERT_EQ(CALL(cuLaunchHostFunc)(stream_, &Held::wait, &held.go), CUDA_SUCCESS);
    ASSERT_EQ(CALL(cuMemsetD8Async)(buffer.address(), 3, 16 * MiB, stream_), CUDA_SUCCESS);
    ASSERT_TRUE(buffer.release(stream_).ok());
  }
  EXPECT_EQ(device_info(0)->physical_in_use, before + 16 * MiB);
  held.go = true;
  ASSERT_EQ(CALL(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
  given(MiB);  // the next buffer drops what is finished
  EXPECT_EQ(device_info(0)->physical_in_use, before);
}

TEST_F(Resizables, ManyThreadsResizeOne) {
  ResizableBuffer buffer = given(64 * granule_);
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      CALL(cuCtxSetCurrent)(context_);
      for (std::uint64_t n = 0; n < 25; ++n) {
        EXPECT_TRUE(buffer.resize((i * 7 + n * 5) % 64 * granule_).ok());
      }
    });
  }
  for (std::thread& one : threads) one.join();
  ASSERT_TRUE(buffer.resize(64 * granule_).ok());
  EXPECT_EQ(physical(buffer), 64 * granule_);
  write(buffer.address(), 64 * granule_, 5);
  expect(buffer.address(), 64 * granule_, 5);
}

TEST_F(Resizables, ReportTheFateOfTheProgramsCopies) {
  const auto info = resize_info();
  ASSERT_TRUE(info.ok()) << info.error().message();
  EXPECT_EQ(cuvmm_get_resize_info(nullptr, nullptr), CUVMM_ERROR_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace cuvmm::test
