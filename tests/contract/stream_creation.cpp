// SPDX-License-Identifier: Apache-2.0
// Streams as objects: flags, priorities, ids, contexts, and refusals.
#include "streams_support.hpp"

namespace cuvmm::test {
namespace {

class StreamCreation : public DriverContract {};

unsigned flags_of(CUstream stream) {
  unsigned flags = 99;
  EXPECT_CUDA(driver().cuStreamGetFlags(stream, &flags));
  return flags;
}

unsigned long long id_of(CUstream stream) {
  unsigned long long id = 0;
  EXPECT_CUDA(driver().cuStreamGetId(stream, &id));
  return id;
}

int priority_of(CUstream stream) {
  int priority = 99;
  EXPECT_CUDA(driver().cuStreamGetPriority(stream, &priority));
  return priority;
}

TEST_F(StreamCreation, FlagsAreTheOnesAskedFor) {
  const GivenStream blocking{CU_STREAM_DEFAULT};
  const GivenStream non_blocking{CU_STREAM_NON_BLOCKING};

  EXPECT_EQ(flags_of(blocking), static_cast<unsigned>(CU_STREAM_DEFAULT));
  EXPECT_EQ(flags_of(non_blocking), static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
}

TEST_F(StreamCreation, UnknownFlagsAreRefused) {
  CUstream stream = nullptr;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuStreamCreate(&stream, 0x80));
}

TEST_F(StreamCreation, WithoutAnOutputItIsRefused) {
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuStreamCreate(nullptr, CU_STREAM_DEFAULT));
}

TEST_F(StreamCreation, WithoutAContextItIsRefused) {
  CUstream stream = nullptr;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_CONTEXT, without_a_context([&] {
                  return driver().cuStreamCreate(&stream, CU_STREAM_DEFAULT);
                }));
}

TEST_F(StreamCreation, PriorityIsTheOneAskedFor) {
  int least = 0;
  int greatest = 0;
  ASSERT_CUDA(driver().cuCtxGetStreamPriorityRange(&least, &greatest));
  ASSERT_LE(greatest, least) << "lower numbers mean greater priorities";

  CUstream stream = nullptr;
  ASSERT_CUDA(driver().cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, greatest));

  EXPECT_EQ(priority_of(stream), greatest);
  EXPECT_EQ(flags_of(stream), static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
  EXPECT_CUDA(driver().cuStreamDestroy(stream));
}

TEST_F(StreamCreation, PriorityBeyondTheRangeIsClamped) {
  int least = 0;
  int greatest = 0;
  ASSERT_CUDA(driver().cuCtxGetStreamPriorityRange(&least, &greatest));
  CUstream too_great = nullptr;
  CUstream too_small = nullptr;

  ASSERT_CUDA(
      driver().cuStreamCreateWithPriority(&too_great, CU_STREAM_NON_BLOCKING, greatest - 100));
  ASSERT_CUDA(driver().cuStreamCreateWithPriority(&too_small, CU_STREAM_NON_BLOCKING, least + 100));

  EXPECT_EQ(priority_of(too_great), greatest);
  EXPECT_EQ(priority_of(too_small), least);
  EXPECT_CUDA(driver().cuStreamDestroy(too_great));
  EXPECT_CUDA(driver().cuStreamDestroy(too_small));
}

TEST_F(StreamCreation, DefaultPriorityIsZero) {
  const GivenStream stream;
  EXPECT_EQ(priority_of(stream), 0);
  EXPECT_EQ(priority_of(default_stream), 0);
}

TEST_F(StreamCreation, EveryStreamHasAUniqueId) {
  NEEDS_CALL(cuStreamGetId);
  const GivenStream one;
  const GivenStream another;

  EXPECT_NE(id_of(one), id_of(another));
  EXPECT_EQ(id_of(one), id_of(one));
}

TEST_F(StreamCreation, AnIdIsNeverUsedAgain) {
  NEEDS_CALL(cuStreamGetId);
  GivenStream first;
  const unsigned long long id_of_first = id_of(first);
  ASSERT_CUDA(first.destroy());

  const GivenStream second;

  EXPECT_NE(id_of(second), id_of_first);
}

TEST_F(StreamCreation, NullAndLegacyNameTheSameStream) {
  NEEDS_CALL(cuStreamGetId);
  EXPECT_EQ(id_of(default_stream), id_of(legacy_stream));
  EXPECT_NE(id_of(legacy_stream), id_of(per_thread_stream));
}

TEST_F(StreamCreation, InThePerThreadFlavourNullNamesTheThreadsOwnStream) {
  NEEDS_CALL(cuStreamGetId);
  unsigned long long id_of_null = 0;

  EXPECT_CUDA(driver().cuStreamGetId_per_thread(default_stream, &id_of_null));

  EXPECT_EQ(id_of_null, id_of(per_thread_stream));
}

TEST_F(StreamCreation, EachThreadHasAPerThreadStreamOfItsOwn) {
  NEEDS_CALL(cuStreamGetId);
  unsigned long long id_elsewhere = 0;

  CallElsewhere ask{[&] { return driver().cuStreamGetId(per_thread_stream, &id_elsewhere); }};

  ASSERT_CUDA(ask.answer());
  EXPECT_NE(id_elsewhere, id_of(per_thread_stream));
}

TEST_F(StreamCreation, AStreamKnowsItsContext) {
  const OwnContext other;
  const GivenStream stream;
  const Current back_in_the_primary_context{primary()};
  CUcontext context = nullptr;

  EXPECT_CUDA(driver().cuStreamGetCtx_v9020(stream, &context));

  EXPECT_EQ(context, other.get());
}

TEST_F(StreamCreation, TheDefaultStreamBelongsToTheCurrentContext) {
  CUcontext context = nullptr;
  EXPECT_CUDA(driver().cuStreamGetCtx_v9020(default_stream, &context));
  EXPECT_EQ(context, primary());
}

TEST_F(StreamCreation, AnOrdinaryStreamHasNoGreenContext) {
  NEEDS_CALL(cuStreamGetCtx_v2);
  const GivenStream stream;
  CUcontext context = nullptr;
  CUgreenCtx green = nullptr;

  EXPECT_CUDA(driver().cuStreamGetCtx(stream, &context, &green));

  EXPECT_EQ(context, primary());
  EXPECT_EQ(green, nullptr);
}

TEST_F(StreamCreation, AStreamKnowsItsDevice) {
  NEEDS_CALL(cuStreamGetDevice);
  const GivenStream stream;
  CUdevice found = -1;

  EXPECT_CUDA(driver().cuStreamGetDevice(stream, &found));

  EXPECT_EQ(found, device());
}

TEST_F(StreamCreation, AStreamOfTheSecondDeviceKnowsIt) {
  NEEDS_DEVICES(2);
  NEEDS_CALL(cuStreamGetDevice);
  const PrimaryContext second_device{1};
  const GivenStream stream;
  CUdevice found = -1;

  EXPECT_CUDA(driver().cuStreamGetDevice(stream, &found));

  EXPECT_EQ(found, device(1));
}

TEST_F(StreamCreation, TheDefaultStreamsCannotBeDestroyed) {
  EXPECT_ANSWER(CUDA_ERROR_INVALID_HANDLE, driver().cuStreamDestroy(default_stream));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_HANDLE, driver().cuStreamDestroy(legacy_stream));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_HANDLE, driver().cuStreamDestroy(per_thread_stream));
}

// A card may crash on an invalid handle, so only the simulated driver is asked.
TEST_F(StreamCreation, AHandleThatIsNoStreamIsRefused) {
  NEEDS_SIMULATED_DRIVER();
  int not_a_stream = 0;
  const auto stream = reinterpret_cast<CUstream>(&not_a_stream);

  EXPECT_ANSWER(CUDA_ERROR_INVALID_HANDLE, driver().cuStreamSynchronize(stream));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_HANDLE, driver().cuStreamQuery(stream));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_HANDLE, driver().cuStreamDestroy(stream));
}

TEST_F(StreamCreation, ADestroyedStreamIsRefused) {
  NEEDS_SIMULATED_DRIVER();
  CUstream stream = nullptr;
  ASSERT_CUDA(driver().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  ASSERT_CUDA(driver().cuStreamDestroy(stream));

  EXPECT_ANSWER(CUDA_ERROR_INVALID_HANDLE, driver().cuStreamQuery(stream));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_HANDLE, driver().cuStreamDestroy(stream));
}

}  // namespace
}  // namespace cuvmm::test
