// SPDX-License-Identifier: Apache-2.0
// Kernels that touch memory they may not: the context is lost, the process survives. Each runs in
// its own process, because a lost context is useless to anything else.
#include "streams_support.hpp"
#include "support/child.hpp"

namespace cuvmm::test {
namespace {

class LaunchFaults : public DriverContract {};

// Never unloaded, synchronised or freed: each of those calls would return the sticky error.
const Kernels& kernels_of_a_lost_context() {
  static const auto* const kernels = new Kernels;
  return *kernels;
}

void make_context_current() {
  CUcontext context = nullptr;
  GIVEN(driver().cuInit(0));
  GIVEN(driver().cuDevicePrimaryCtxRetain(&context, device()));
  GIVEN(driver().cuCtxPushCurrent(context));
}

// A kernel writes to addresses at which nothing is mapped.
void launch_a_fault(CUstream stream) {
  const Kernels& kernels = kernels_of_a_lost_context();
  CUdeviceptr address = 0;
  GIVEN(driver().cuMemAddressReserve(&address, granularity(), 0, 0, 0));
  GIVEN(launch(kernels.fill, stream, address, std::uint32_t{1}, std::uint32_t{4}));
}

void expect_sticky(CUresult error) {
  CUdeviceptr memory = 0;
  CUstream stream = nullptr;
  EXPECT_ANSWER(error, synchronize());
  EXPECT_ANSWER(error, synchronize()) << "asking does not clear it";
  EXPECT_ANSWER(error, driver().cuMemAlloc(&memory, 2 * MiB));
  EXPECT_ANSWER(error, driver().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  EXPECT_ANSWER(error, driver().cuStreamQuery(default_stream));
}

CHILD_ROLE(writes_to_reserved_addresses) {
  make_context_current();
  launch_a_fault(default_stream);

  expect_sticky(CUDA_ERROR_ILLEGAL_ADDRESS);
}

CHILD_ROLE(writes_to_memory_without_access) {
  make_context_current();
  const Kernels& kernels = kernels_of_a_lost_context();
  CUdeviceptr address = 0;
  const CUmemAllocationProp properties = chunk_properties();
  CUmemGenericAllocationHandle chunk = 0;
  const Size granule = granularity();
  GIVEN(driver().cuMemAddressReserve(&address, granule, 0, 0, 0));
  GIVEN(driver().cuMemCreate(&chunk, granule, &properties, 0));
  GIVEN(driver().cuMemMap(address, granule, 0, chunk, 0));

  GIVEN(launch(kernels.fill, default_stream, address, std::uint32_t{1}, std::uint32_t{4}));

  expect_sticky(CUDA_ERROR_ILLEGAL_ADDRESS);
}

CHILD_ROLE(writes_to_read_only_memory) {
  make_context_current();
  const Kernels& kernels = kernels_of_a_lost_context();
  CUdeviceptr address = 0;
  const CUmemAllocationProp properties = chunk_properties();
  CUmemGenericAllocationHandle chunk = 0;
  const Size granule = granularity();
  GIVEN(driver().cuMemAddressReserve(&address, granule, 0, 0, 0));
  GIVEN(driver().cuMemCreate(&chunk, granule, &properties, 0));
  GIVEN(driver().cuMemMap(address, granule, 0, chunk, 0));
  GIVEN(set_access(address, granule, CU_MEM_ACCESS_FLAGS_PROT_READ));

  GIVEN(launch(kernels.fill, default_stream, address, std::uint32_t{1}, std::uint32_t{4}));

  expect_sticky(CUDA_ERROR_ILLEGAL_ADDRESS);
}

CHILD_ROLE(writes_to_unmapped_memory_on_a_stream) {
  make_context_current();
  CUstream stream = nullptr;
  GIVEN(driver().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  launch_a_fault(stream);

  EXPECT_ANSWER(CUDA_ERROR_ILLEGAL_ADDRESS, driver().cuStreamSynchronize(stream));
  expect_sticky(CUDA_ERROR_ILLEGAL_ADDRESS);
}

CHILD_ROLE(does_not_run_work_behind_a_fault) {
  make_context_current();
  static bool called = false;
  launch_a_fault(default_stream);

  // The driver may know of the fault before the call or not; in both cases the function is not
  // called.
  (void)driver().cuLaunchHostFunc(
      default_stream, [](void*) { called = true; }, nullptr);

  expect_sticky(CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_FALSE(called);
}

// Programs may learn of the fault from their frees.
CHILD_ROLE(frees_in_a_lost_context) {
  make_context_current();
  CUstream stream = nullptr;
  GIVEN(driver().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUdeviceptr blocking = 0;
  GIVEN(driver().cuMemAlloc(&blocking, 1 * MiB));
  const CUdeviceptr ordered = given_async(1 * MiB, stream);
  const CUdeviceptr more = given_async(1 * MiB, stream);
  GIVEN(driver().cuStreamSynchronize(stream));
  launch_a_fault(stream);

  constexpr CUresult fault = CUDA_ERROR_ILLEGAL_ADDRESS;
  EXPECT_ANSWER(fault, driver().cuStreamSynchronize(stream));
  EXPECT_ANSWER(fault, driver().cuMemFreeAsync(ordered, stream));
  EXPECT_ANSWER(fault, driver().cuMemFree(more));
  EXPECT_ANSWER(fault, driver().cuMemFreeAsync(blocking, stream));
  EXPECT_ANSWER(fault, driver().cuMemFree(blocking));
}

TEST_F(LaunchFaults, FreesInALostContextReportTheFault) {
  EXPECT_EQ(run_child("frees_in_a_lost_context"), 0);
}

TEST_F(LaunchFaults, WritingToReservedAddressesLosesTheContext) {
  EXPECT_EQ(run_child("writes_to_reserved_addresses"), 0);
}

TEST_F(LaunchFaults, WritingWithoutAccessLosesTheContext) {
  EXPECT_EQ(run_child("writes_to_memory_without_access"), 0);
}

TEST_F(LaunchFaults, WritingToReadOnlyMemoryLosesTheContext) {
  EXPECT_EQ(run_child("writes_to_read_only_memory"), 0);
}

TEST_F(LaunchFaults, AFaultOnOneStreamLosesTheWholeContext) {
  EXPECT_EQ(run_child("writes_to_unmapped_memory_on_a_stream"), 0);
}

TEST_F(LaunchFaults, AHostFunctionBehindAFaultIsNotCalled) {
  EXPECT_EQ(run_child("does_not_run_work_behind_a_fault"), 0);
}

}  // namespace
}  // namespace cuvmm::test
