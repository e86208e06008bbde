// SPDX-License-Identifier: Apache-2.0
// Which frees and other calls wait for running work. All measured on an H200 unless marked.
#include "streams_support.hpp"

namespace cuvmm::test {
namespace {

class FreeWaits : public DriverContract {
 protected:
  // Frees a blocking allocation while the context has work that only this thread can end.
  void expect_that_free_waits(Size size, unsigned stream_flags) {
    const GivenStream stream{stream_flags};
    GivenBlocking memory{size};
    SlowWork work{kernels(), stream};

    CallElsewhere free{[&] { return memory.free(); }};

    EXPECT_TRUE(free.waits());
    work.end();
    EXPECT_CUDA(free.answer());
  }
};

TEST_F(FreeWaits, FreeOfASmallBlockingAllocationWaitsForTheContextsWork) {
  expect_that_free_waits(1 * KiB, CU_STREAM_NON_BLOCKING);
}

TEST_F(FreeWaits, FreeOfAGranuleWaitsForTheContextsWork) {
  expect_that_free_waits(2 * MiB, CU_STREAM_NON_BLOCKING);
}

TEST_F(FreeWaits, FreeOfALargeBlockingAllocationWaitsForTheContextsWork) {
  expect_that_free_waits(64 * MiB, CU_STREAM_NON_BLOCKING);
}

TEST_F(FreeWaits, FreeWaitsForWorkOnABlockingStreamToo) {
  expect_that_free_waits(2 * MiB, CU_STREAM_DEFAULT);
}

TEST_F(FreeWaits, FreeWaitsForWorkOnTheLegacyStream) {
  GivenBlocking memory{2 * MiB};
  SlowWork work{kernels(), default_stream};

  CallElsewhere free{[&] { return memory.free(); }};

  EXPECT_TRUE(free.waits());
  work.end();
  EXPECT_CUDA(free.answer());
}

// Every waiting thread waits, not only the first to arrive.
TEST_F(FreeWaits, EveryThreadWaitsForWorkThatADestroyedStreamLeftBehind) {
  const Kernels& all = kernels();
  HostFlag flag;
  GivenStream stream;
  GivenBlocking memory{2 * MiB};
  ASSERT_CUDA(launch(all.wait_for_flag, stream, Shape{.grid = 1, .block = 1}, flag.address()));
  ASSERT_CUDA(stream.destroy());

  CallElsewhere first{[] { return synchronize(); }};
  EXPECT_TRUE(first.waits());
  CallElsewhere second{[] { return synchronize(); }};
  EXPECT_TRUE(second.waits());
  CallElsewhere free{[&] { return memory.free(); }};
  EXPECT_TRUE(free.waits());

  flag.set();
  EXPECT_CUDA(first.answer());
  EXPECT_CUDA(second.answer());
  EXPECT_CUDA(free.answer());
  EXPECT_FALSE(flag.given_up_on());
}

// A preload library must not make these calls inside calls that natively return at once.
TEST_F(FreeWaits, SubmissionsOfOtherThreadsWaitWhileAFreeWaits) {
  NEEDS_THE_DRIVERS_OWN_MEMORY();
  const GivenStream busy;
  const GivenStream idle;
  const GivenBlocking other{2 * MiB};
  GivenBlocking memory{2 * MiB};
  CUevent destroyed = nullptr;
  CUevent created = nullptr;
  const GivenEvent recorded;
  GIVEN(driver().cuEventCreate(&destroyed, CU_EVENT_DISABLE_TIMING));
  SlowWork work{kernels(), busy};
  CallElsewhere free{[&] { return memory.free(); }};
  ASSERT_TRUE(free.waits());

  CallElsewhere create{[&] { return driver().cuEventCreate(&created, CU_EVENT_DISABLE_TIMING); }};
  CallElsewhere destroy{[&] { return driver().cuEventDestroy(destroyed); }};
  CallElsewhere record{[&] { return driver().cuEventRecord(recorded, idle); }};
  CallElsewhere set{[&] { return driver().cuMemsetD8Async(other.address(), 1, 64, idle); }};
  EXPECT_TRUE(create.waits());
  EXPECT_TRUE(destroy.waits());
  EXPECT_TRUE(record.waits());
  EXPECT_TRUE(set.waits());

  work.end();
  for (CallElsewhere* call : {&free, &create, &destroy, &record, &set}) {
    EXPECT_CUDA(call->answer());
  }
  EXPECT_CUDA(driver().cuEventDestroy(created));
}

TEST_F(FreeWaits, QueriesAndWaitsOfOtherThreadsProceedWhileAFreeWaits) {
  const GivenStream busy;
  const GivenStream idle;
  GivenBlocking memory{2 * MiB};
  const GivenEvent event;
  GIVEN(driver().cuEventRecord(event, idle));
  GIVEN(driver().cuStreamSynchronize(idle));
  SlowWork work{kernels(), busy};
  CallElsewhere free{[&] { return memory.free(); }};
  ASSERT_TRUE(free.waits());

  const std::vector<std::function<CUresult()>> calls{
      [&] { return driver().cuStreamQuery(idle); },
      [&] { return driver().cuStreamQuery(CU_STREAM_PER_THREAD); },
      [&] { return driver().cuEventQuery(event); },
      [&] { return driver().cuEventSynchronize(event); },
      [&] { return driver().cuStreamWaitEvent(idle, event, 0); }};
  for (const auto& call : calls) EXPECT_CUDA(CallElsewhere{call}.answer());

  work.end();
  EXPECT_CUDA(free.answer());
}

TEST_F(FreeWaits, FreeWaitsForEveryStreamOfTheContext) {
  const GivenStream first;
  const GivenStream second;
  GivenBlocking memory{2 * MiB};
  const Kernels& all = kernels();
  SlowWork work_on_first{all, first};
  SlowWork work_on_second{all, second};

  CallElsewhere free{[&] { return memory.free(); }};

  EXPECT_TRUE(free.waits());
  work_on_first.end();
  EXPECT_TRUE(free.waits()) << "the second stream still works";
  work_on_second.end();
  EXPECT_CUDA(free.answer());
}

TEST_F(FreeWaits, FreeOfTheMemoryOfAnotherContextWaitsForThatContextsWork) {
  const OwnContext other;
  const Kernels kernels_there;
  const GivenStream stream;
  GivenBlocking memory{2 * MiB};
  SlowWork work{kernels_there, stream};
  const Current back_in_the_primary_context{primary()};

  CallElsewhere free{[&] { return memory.free(); }};

  EXPECT_TRUE(free.waits());
  work.end();
  EXPECT_CUDA(free.answer());
}

TEST_F(FreeWaits, FreeInOneContextDoesNotWaitForWorkInAnother) {
  GivenBlocking memory{2 * MiB};
  const OwnContext other;
  const Kernels kernels_there;
  const GivenStream stream;
  SlowWork work{kernels_there, stream};
  const Current back_in_the_primary_context{primary()};

  EXPECT_CUDA(memory.free());

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(stream));
  work.end();
}

TEST_F(FreeWaits, FreeWaitsForAStreamThatWaitsForTheHost) {
  NEEDS_CALL(cuStreamWaitValue32_v2);
  const GivenStream stream;
  GivenBlocking memory{2 * MiB};
  HostFlag flag;
  ASSERT_CUDA(driver().cuStreamWaitValue32(stream, flag.address(), 1, CU_STREAM_WAIT_VALUE_GEQ));

  CallElsewhere free{[&] { return memory.free(); }};

  EXPECT_TRUE(free.waits());
  flag.set();
  EXPECT_CUDA(free.answer());
}

TEST_F(FreeWaits, FreeOfAsyncMemoryDoesNotWait) {
  const GivenStream allocating;
  const GivenStream working;
  const CUdeviceptr memory = given_async(2 * MiB, allocating);
  ASSERT_CUDA(driver().cuStreamSynchronize(allocating));
  SlowWork work{kernels(), working};

  EXPECT_CUDA(driver().cuMemFree(memory));

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(working));
  work.end();
}

TEST_F(FreeWaits, FreeOfAsyncMemoryDoesNotWaitBesideARelaxedCaptureEither) {
  const GivenStream allocating;
  const GivenStream working;
  const GivenStream captured;
  const CUdeviceptr memory = given_async(2 * MiB, allocating);
  ASSERT_CUDA(driver().cuStreamSynchronize(allocating));
  SlowWork work{kernels(), working};
  begin_capture(captured, CU_STREAM_CAPTURE_MODE_RELAXED);

  EXPECT_CUDA(driver().cuMemFree(memory));

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(working));
  expect_well(captured);
  work.end();
}

TEST_F(FreeWaits, AsyncFreeOfBlockingMemoryIsLegalAndDoesNotWait) {
  const GivenStream stream;
  GivenBlocking memory{2 * MiB};
  SlowWork work{kernels(), stream};

  EXPECT_CUDA(driver().cuMemFreeAsync(memory.forget(), stream));

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(stream));
  work.end();
}

TEST_F(FreeWaits, AsyncFreeOfBlockingMemoryIsOrderedBehindTheStreamsWork) {
  const GivenStream stream;
  GivenBlocking memory{2 * MiB};
  PinnedWords seen{1};
  write_word(memory.address(), 7);
  SlowWork work{kernels(), stream};
  ASSERT_CUDA(driver().cuMemcpyDtoHAsync(seen.data(), memory.address(), 4, stream));

  EXPECT_CUDA(driver().cuMemFreeAsync(memory.forget(), stream));
  work.end();

  EXPECT_CUDA(driver().cuStreamSynchronize(stream));
  EXPECT_EQ(seen[0], 7u) << "the copy queued before the free read the memory";
}

TEST_F(FreeWaits, AsyncFreeOfAsyncMemoryDoesNotWait) {
  const GivenStream stream;
  const CUdeviceptr memory = given_async(2 * MiB, stream);
  SlowWork work{kernels(), stream};

  EXPECT_CUDA(driver().cuMemFreeAsync(memory, stream));

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(stream));
  work.end();
}

TEST_F(FreeWaits, CopyOnOtherMemoryDoesNotWaitForANonBlockingStream) {
  const GivenStream stream;
  const GivenBlocking memory{4 * MiB};
  SlowWork work{kernels(), stream};

  EXPECT_CUDA(driver().cuMemcpyDtoD(memory.address() + 2 * MiB, memory.address(), 2 * MiB));

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(stream));
  work.end();
}

TEST_F(FreeWaits, SetOnOtherMemoryDoesNotWaitForANonBlockingStream) {
  const GivenStream stream;
  const GivenBlocking memory{2 * MiB};
  SlowWork work{kernels(), stream};

  EXPECT_CUDA(driver().cuMemsetD8(memory.address(), 1, memory.size()));

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(stream));
  work.end();
}

TEST_F(FreeWaits, DeviceToDeviceCopyReturnsBeforeItIsDone) {
  const GivenBlocking memory{4 * MiB};
  SlowWork work{kernels(), default_stream};

  EXPECT_CUDA(driver().cuMemcpyDtoD(memory.address() + 2 * MiB, memory.address(), 2 * MiB));

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(default_stream));
  work.end();
}

TEST_F(FreeWaits, SetReturnsBeforeItIsDone) {
  const GivenBlocking memory{2 * MiB};
  SlowWork work{kernels(), default_stream};

  EXPECT_CUDA(driver().cuMemsetD32(memory.address(), 3, 16));

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(default_stream));
  work.end();
  EXPECT_TRUE(all_words_are(memory.address(), 16, 3));
}

TEST_F(FreeWaits, AllocationDoesNotWait) {
  const GivenStream stream;
  SlowWork work{kernels(), stream};

  const GivenBlocking memory{2 * MiB};

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(stream));
  work.end();
}

TEST_F(FreeWaits, MappingDoesNotWait) {
  const GivenStream stream;
  const Size granule = granularity();
  const GivenReservation reservation{granule};
  SlowWork work{kernels(), stream};

  const GivenChunk chunk = given_chunk(granule);
  const GivenMapping mapping = given_mapping(reservation.address(), chunk);
  EXPECT_CUDA(set_access(mapping.address(), granule));

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(stream));
  work.end();
}

TEST_F(FreeWaits, UnmappingDoesNotWait) {
  const GivenStream stream;
  GivenMapped mapped = given_mapped(1, granularity());
  SlowWork work{kernels(), stream};

  EXPECT_CUDA(mapped.mapping(0).unmap());

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(stream));
  work.end();
}

TEST_F(FreeWaits, ReleasingAChunkDoesNotWait) {
  const GivenStream stream;
  GivenMapped mapped = given_mapped(1, granularity());
  ASSERT_CUDA(mapped.mapping(0).unmap());
  SlowWork work{kernels(), stream};

  EXPECT_CUDA(mapped.chunk(0).release());

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(stream));
  work.end();
}

TEST_F(FreeWaits, ReservingDoesNotWait) {
  const GivenStream stream;
  SlowWork work{kernels(), stream};

  const GivenReservation reservation{granularity()};

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(stream));
  work.end();
}

TEST_F(FreeWaits, FreeingAddressesDoesNotWait) {
  const GivenStream stream;
  GivenReservation reservation{granularity()};
  SlowWork work{kernels(), stream};

  EXPECT_CUDA(driver().cuMemAddressFree(reservation.forget(), reservation.size()));

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(stream));
  work.end();
}

}  // namespace
}  // namespace cuvmm::test
