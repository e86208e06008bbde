// SPDX-License-Identifier: Apache-2.0
// Creating, pushing, popping and destroying contexts.
#include "streams_support.hpp"

namespace cuvmm::test {
namespace {

class Contexts : public DriverContract {
 protected:
  static CUcontext current() {
    CUcontext context = nullptr;
    EXPECT_CUDA(driver().cuCtxGetCurrent(&context));
    return context;
  }
  static CUcontext popped() {
    CUcontext context = nullptr;
    EXPECT_CUDA(driver().cuCtxPopCurrent(&context));
    return context;
  }
  static CUcontext created() {
    CUcontext context = nullptr;
    GIVEN(driver().cuCtxCreate_v3020(&context, 0, device()));
    return context;
  }
};

TEST_F(Contexts, ANewContextIsCurrent) {
  CUcontext context = nullptr;
  ASSERT_CUDA(driver().cuCtxCreate_v3020(&context, 0, device()));

  EXPECT_EQ(current(), context);

  EXPECT_CUDA(driver().cuCtxDestroy(context));
  EXPECT_EQ(current(), primary()) << "destroying the current context pops it";
}

TEST_F(Contexts, TheNewestSignatureCreatesToo) {
  NEEDS_CALL(cuCtxCreate_v4);
  CUcontext context = nullptr;

  ASSERT_CUDA(driver().cuCtxCreate(&context, nullptr, 0, device()));

  EXPECT_EQ(current(), context);
  EXPECT_CUDA(driver().cuCtxDestroy(context));
}

TEST_F(Contexts, TheAffinitySignatureCreatesToo) {
  NEEDS_CALL(cuCtxCreate_v3);
  CUcontext context = nullptr;

  ASSERT_CUDA(driver().cuCtxCreate_v11040(&context, nullptr, 0, 0, device()));

  EXPECT_EQ(current(), context);
  EXPECT_CUDA(driver().cuCtxDestroy(context));
}

TEST_F(Contexts, AnUnknownDeviceIsRefused) {
  CUcontext context = nullptr;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_DEVICE, driver().cuCtxCreate_v3020(&context, 0, 999));
  EXPECT_EQ(current(), primary());
}

TEST_F(Contexts, PushAndPopAreAStack) {
  const CUcontext first = created();
  ASSERT_EQ(popped(), first);
  const CUcontext second = created();
  ASSERT_EQ(popped(), second);

  ASSERT_CUDA(driver().cuCtxPushCurrent(first));
  ASSERT_CUDA(driver().cuCtxPushCurrent(second));

  EXPECT_EQ(current(), second);
  EXPECT_EQ(popped(), second);
  EXPECT_EQ(current(), first);
  EXPECT_EQ(popped(), first);
  EXPECT_EQ(current(), primary());
  EXPECT_CUDA(driver().cuCtxDestroy(first));
  EXPECT_CUDA(driver().cuCtxDestroy(second));
}

TEST_F(Contexts, SetReplacesTheTopOfTheStack) {
  const CUcontext other = created();
  ASSERT_EQ(popped(), other);
  const CUcontext third = created();

  ASSERT_CUDA(driver().cuCtxSetCurrent(other));

  EXPECT_EQ(current(), other);
  EXPECT_EQ(popped(), other);
  EXPECT_EQ(current(), primary()) << "the third context is no longer on the stack";
  EXPECT_CUDA(driver().cuCtxDestroy(other));
  EXPECT_CUDA(driver().cuCtxDestroy(third));
}

TEST_F(Contexts, SettingNoneEmptiesTheTop) {
  const CUcontext other = created();

  ASSERT_CUDA(driver().cuCtxSetCurrent(nullptr));

  EXPECT_EQ(current(), primary());
  EXPECT_CUDA(driver().cuCtxDestroy(other));
}

TEST_F(Contexts, AThreadBeginsWithNone) {
  CUcontext context = primary();
  EXPECT_CUDA(without_a_context([&] { return driver().cuCtxGetCurrent(&context); }));
  EXPECT_EQ(context, nullptr);
}

TEST_F(Contexts, AnEmptyStackCannotBePopped) {
  CUcontext context = nullptr;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_CONTEXT,
                without_a_context([&] { return driver().cuCtxPopCurrent(&context); }));
}

TEST_F(Contexts, CallsWithoutAContextAreRefused) {
  CUdeviceptr memory = 0;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_CONTEXT,
                without_a_context([&] { return driver().cuMemAlloc(&memory, 4096); }));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_CONTEXT, without_a_context([] { return synchronize(); }));
}

TEST_F(Contexts, OneContextMayBeCurrentOnTwoThreads) {
  const GivenBlocking memory{4 * KiB};
  CallElsewhere set{[&] { return driver().cuMemsetD32(memory.address(), 3, 16); }};
  ASSERT_CUDA(set.answer());
  EXPECT_TRUE(all_words_are(memory.address(), 16, 3));
}

TEST_F(Contexts, DestroyingAContextGivesItsMemoryBack) {
  OwnContext other;
  CUdeviceptr memory = 0;
  ASSERT_CUDA(driver().cuMemAlloc(&memory, 2 * MiB));

  ASSERT_CUDA(other.destroy());

  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemFree(memory));
}

TEST_F(Contexts, DestroyingAContextThatIsNotCurrentLeavesTheStack) {
  const CUcontext other = created();
  ASSERT_EQ(popped(), other);

  EXPECT_CUDA(driver().cuCtxDestroy(other));

  EXPECT_EQ(current(), primary());
}

TEST_F(Contexts, CallsInADestroyedCurrentContextReportIt) {
  const CUcontext other = created();
  CUdeviceptr memory = 0;

  // After another thread destroys the context, it stays current on this one.
  CallElsewhere destroy{[&] { return driver().cuCtxDestroy(other); }};
  ASSERT_CUDA(destroy.answer());

  EXPECT_ANSWER(CUDA_ERROR_CONTEXT_IS_DESTROYED, driver().cuMemAlloc(&memory, 4096));
  CUcontext gone = nullptr;
  EXPECT_CUDA(driver().cuCtxPopCurrent(&gone));
  EXPECT_EQ(gone, other);
  EXPECT_EQ(current(), primary());
}

TEST_F(Contexts, NoneCannotBeDestroyed) {
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuCtxDestroy(nullptr));
}

TEST_F(Contexts, ThePrimaryContextCannotBeDestroyed) {
  EXPECT_ANSWER(CUDA_ERROR_INVALID_CONTEXT, driver().cuCtxDestroy(primary()));
  EXPECT_EQ(current(), primary());
}

TEST_F(Contexts, EveryAttachNeedsADetach) {
  const CUcontext other = created();
  CUcontext attached = nullptr;
  unsigned long long id = 0;
  ASSERT_CUDA(driver().cuCtxAttach(&attached, 0));
  EXPECT_EQ(attached, other) << "the same context";

  EXPECT_CUDA(driver().cuCtxDetach(other));
  EXPECT_CUDA(driver().cuCtxGetId(other, &id));
  EXPECT_CUDA(driver().cuCtxDetach(other));

  EXPECT_ANSWER(CUDA_ERROR_CONTEXT_IS_DESTROYED, driver().cuCtxGetId(other, &id));
  EXPECT_EQ(current(), primary());
}

TEST_F(Contexts, EveryContextHasAUniqueId) {
  NEEDS_CALL(cuCtxGetId);
  const OwnContext other;
  unsigned long long of_primary = 0;
  unsigned long long of_other = 0;

  EXPECT_CUDA(driver().cuCtxGetId(primary(), &of_primary));
  EXPECT_CUDA(driver().cuCtxGetId(other.get(), &of_other));

  EXPECT_NE(of_primary, of_other);
}

TEST_F(Contexts, NoContextMeansTheCurrentOneWhenAskedForItsId) {
  NEEDS_CALL(cuCtxGetId);
  unsigned long long named = 0;
  unsigned long long unnamed = 1;
  EXPECT_CUDA(driver().cuCtxGetId(primary(), &named));
  EXPECT_CUDA(driver().cuCtxGetId(nullptr, &unnamed));
  EXPECT_EQ(named, unnamed);
}

TEST_F(Contexts, AContextKnowsItsDeviceAndItsFlags) {
  CUcontext context = nullptr;
  ASSERT_CUDA(driver().cuCtxCreate_v3020(&context, CU_CTX_SCHED_YIELD, device()));
  CUdevice found = -1;
  unsigned flags = 0;

  EXPECT_CUDA(driver().cuCtxGetDevice_v2000(&found));
  EXPECT_CUDA(driver().cuCtxGetFlags(&flags));

  EXPECT_EQ(found, device());
  EXPECT_EQ(flags & CU_CTX_SCHED_MASK, static_cast<unsigned>(CU_CTX_SCHED_YIELD));
  EXPECT_CUDA(driver().cuCtxDestroy(context));
}

TEST_F(Contexts, UnknownFlagsAreRefused) {
  CUcontext context = nullptr;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuCtxCreate_v3020(&context, 0x8000'0000u, device()));
}

TEST_F(Contexts, TheDeviceOfANamedContextMayBeAskedFor) {
  NEEDS_CALL(cuCtxGetDevice_v2);
  const OwnContext other;
  CUdevice found = -1;
  EXPECT_CUDA(driver().cuCtxGetDevice(&found, primary()));
  EXPECT_EQ(found, device());
}

TEST_F(Contexts, SynchronizeWaitsForTheCurrentContextOnly) {
  const OwnContext other;
  const Kernels kernels_there;
  const GivenStream stream;
  SlowWork work{kernels_there, stream};
  {
    const Current back_in_the_primary_context{primary()};
    EXPECT_CUDA(synchronize());
  }
  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(stream));
  work.end();
}

TEST_F(Contexts, SynchronizeMayNameItsContext) {
  NEEDS_CALL(cuCtxSynchronize_v2);
  const OwnContext other;
  const Kernels kernels_there;
  const GivenStream stream;
  SlowWork work{kernels_there, stream};

  EXPECT_CUDA(driver().cuCtxSynchronize(primary()));
  CallElsewhere synchronize_other{[&] { return driver().cuCtxSynchronize(other.get()); }};

  EXPECT_TRUE(synchronize_other.waits());
  work.end();
  EXPECT_CUDA(synchronize_other.answer());
}

}  // namespace
}  // namespace cuvmm::test
