// SPDX-License-Identifier: Apache-2.0
// Host functions and callbacks: when they run, and what they may not do.
#include <atomic>

#include "streams_support.hpp"

namespace cuvmm::test {
namespace {

class HostFunctions : public DriverContract {};

// Host functions run on a driver thread, one after another within a stream.
struct Log {
  std::mutex mutex;
  std::vector<int> steps;
  void add(int step) {
    const std::lock_guard lock{mutex};
    steps.push_back(step);
  }
  std::vector<int> read() {
    const std::lock_guard lock{mutex};
    return steps;
  }
};

struct Step {
  Log* log;
  int number;
};
void CUDA_CB add_step(void* step) {
  static_cast<Step*>(step)->log->add(static_cast<Step*>(step)->number);
}

struct Heard {
  std::atomic<int> calls = 0;
  std::atomic<CUstream> stream = nullptr;
  std::atomic<CUresult> status = CUDA_ERROR_UNKNOWN;
};
void CUDA_CB hear(CUstream stream, CUresult status, void* heard_) {
  auto* heard = static_cast<Heard*>(heard_);
  heard->stream = stream;
  heard->status = status;
  ++heard->calls;
}

TEST_F(HostFunctions, RunInTheOrderOfTheStream) {
  const GivenStream stream;
  Log log;
  Step first{&log, 1};
  Step second{&log, 2};
  Step third{&log, 3};
  ASSERT_CUDA(driver().cuLaunchHostFunc(stream, add_step, &first));
  ASSERT_CUDA(driver().cuLaunchHostFunc(stream, add_step, &second));
  ASSERT_CUDA(driver().cuLaunchHostFunc(stream, add_step, &third));

  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  EXPECT_EQ(log.read(), (std::vector<int>{1, 2, 3}));
}

TEST_F(HostFunctions, RunAfterTheWorkBeforeThem) {
  const GivenStream stream;
  Log log;
  Step step{&log, 1};
  SlowWork work{kernels(), stream};
  ASSERT_CUDA(driver().cuLaunchHostFunc(stream, add_step, &step));

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(stream));
  EXPECT_TRUE(log.read().empty());

  work.end();
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));
  EXPECT_EQ(log.read(), std::vector<int>{1});
}

TEST_F(HostFunctions, HoldBackTheWorkBehindThem) {
  const GivenStream stream;
  const GivenBlocking memory{4 * KiB};
  PinnedWords word{1};
  struct Writing {
    std::uint32_t* word;
  } writing{word.data()};
  ASSERT_CUDA(driver().cuLaunchHostFunc(
      stream,
      [](void* data) {
        std::this_thread::sleep_for(std::chrono::milliseconds{5});
        *static_cast<Writing*>(data)->word = 55;
      },
      &writing));

  ASSERT_CUDA(driver().cuMemcpyHtoDAsync(memory.address(), word.data(), 4, stream));
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  EXPECT_EQ(read_word(memory.address()), 55u);
}

TEST_F(HostFunctions, MayNotCallTheDriver) {
  const GivenStream stream;
  struct Asked {
    CUresult allocate = CUDA_SUCCESS;
    CUresult synchronize = CUDA_SUCCESS;
  } asked;

  // Measured; the documentation promises it for callbacks only.
  ASSERT_CUDA(driver().cuLaunchHostFunc(
      stream,
      [](void* data) {
        auto* answers = static_cast<Asked*>(data);
        CUdeviceptr address = 0;
        answers->allocate = driver().cuMemAlloc(&address, 4096);
        answers->synchronize = driver().cuStreamSynchronize(default_stream);
      },
      &asked));
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  EXPECT_ANSWER(CUDA_ERROR_NOT_PERMITTED, asked.allocate);
  EXPECT_ANSWER(CUDA_ERROR_NOT_PERMITTED, asked.synchronize);
}

TEST_F(HostFunctions, WithoutAFunctionItIsRefused) {
  const GivenStream stream;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuLaunchHostFunc(stream, nullptr, nullptr));
}

TEST_F(HostFunctions, RunOnTheDefaultStreamToo) {
  Log log;
  Step step{&log, 4};
  ASSERT_CUDA(driver().cuLaunchHostFunc(default_stream, add_step, &step));

  ASSERT_CUDA(driver().cuStreamSynchronize(default_stream));

  EXPECT_EQ(log.read(), std::vector<int>{4});
}

TEST_F(HostFunctions, ACallbackIsCalledOnceWithItsStream) {
  const GivenStream stream;
  Heard heard;
  ASSERT_CUDA(driver().cuStreamAddCallback(stream, hear, &heard, 0));

  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  EXPECT_EQ(heard.calls, 1);
  EXPECT_EQ(heard.stream, stream.get());
  EXPECT_ANSWER(CUDA_SUCCESS, heard.status.load());
}

TEST_F(HostFunctions, ACallbackRunsAfterTheWorkBeforeIt) {
  const GivenStream stream;
  Heard heard;
  SlowWork work{kernels(), stream};
  ASSERT_CUDA(driver().cuStreamAddCallback(stream, hear, &heard, 0));

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(stream));
  EXPECT_EQ(heard.calls, 0);

  work.end();
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));
  EXPECT_EQ(heard.calls, 1);
}

TEST_F(HostFunctions, ACallbackMayNotCallTheDriver) {
  const GivenStream stream;
  CUresult answer = CUDA_SUCCESS;
  ASSERT_CUDA(driver().cuStreamAddCallback(
      stream,
      [](CUstream, CUresult, void* data) {
        CUdeviceptr address = 0;
        *static_cast<CUresult*>(data) = driver().cuMemAlloc(&address, 4096);
      },
      &answer, 0));

  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  EXPECT_ANSWER(CUDA_ERROR_NOT_PERMITTED, answer);
}

TEST_F(HostFunctions, CallbackFlagsMustBeZero) {
  const GivenStream stream;
  Heard heard;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuStreamAddCallback(stream, hear, &heard, 1));
  EXPECT_CUDA(driver().cuStreamSynchronize(stream));
  EXPECT_EQ(heard.calls, 0);
}

TEST_F(HostFunctions, AFunctionSeesTheWorkThatItsStreamWaitedFor) {
  const GivenStream writer;
  const GivenStream calling;
  const GivenEvent written;
  const GivenBlocking memory{4 * KiB};
  PinnedWords word{1};
  struct Reading {
    const PinnedWords* word;
    std::uint32_t seen = 0;
  } reading{&word};
  write_word(memory.address(), 8);
  SlowWork work{kernels(), writer};
  ASSERT_CUDA(driver().cuMemcpyDtoHAsync(word.data(), memory.address(), 4, writer));
  ASSERT_CUDA(driver().cuEventRecord(written, writer));
  ASSERT_CUDA(driver().cuStreamWaitEvent(calling, written, 0));
  ASSERT_CUDA(driver().cuLaunchHostFunc(
      calling,
      [](void* data) {
        auto* read = static_cast<Reading*>(data);
        read->seen = (*read->word)[0];
      },
      &reading));

  work.end();
  ASSERT_CUDA(driver().cuStreamSynchronize(calling));

  EXPECT_EQ(reading.seen, 8u);
}

}  // namespace
}  // namespace cuvmm::test
