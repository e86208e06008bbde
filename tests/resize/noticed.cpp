// SPDX-License-Identifier: Apache-2.0
// Everything that could notice a deferred copy runs it first: the list of
// docs/internals/life_of_a_resize.md, line by line.
#include <set>
#include <sstream>

#include "resize/world.hpp"
#include "support/zero_calls.hpp"

namespace cuvmm::test {
namespace {

constexpr Size other_bytes = 64 * KiB;

class DeferredCopyIsRunBy : public ResizeTest {
 protected:
  void SetUp() override {
    ResizeTest::SetUp();
    ASSERT_DONE(through_door<Call::cuStreamCreate>(&stream_, unsigned{CU_STREAM_NON_BLOCKING}));
    ASSERT_DONE(through_door<Call::cuEventCreate>(&event_, unsigned{CU_EVENT_DEFAULT}));
    other_ = given_filled(other_bytes, 50);
    make_graph();
    ASSERT_DONE(through_door<Call::cuEventRecord>(event_, stream_));
    ASSERT_DONE(through_door<Call::cuCtxSynchronize>());
    a_ = given_filled(block, 1);
    b_ = given_put_off(a_, block, 2 * block);
  }

  // The graph adds one to every word of `other_`.
  void make_graph() {
    CUgraph graph = nullptr;
    ASSERT_DONE(
        through_door<Call::cuStreamBeginCapture_v2>(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ASSERT_DONE(
        launch_through_door(kernels_->add_one, stream_, std::uint64_t{other_}, std::uint32_t{16}));
    ASSERT_DONE(through_door<Call::cuStreamEndCapture>(stream_, &graph));
    ASSERT_DONE(through_door<Call::cuGraphInstantiateWithFlags>(&graph_, graph, 0ull));
    ASSERT_DONE(through_door<Call::cuGraphDestroy>(graph));
  }

  // The copy has been run, once, and the following free elides nothing.
  void expect_run(std::uint32_t seed_of_b = 1) {
    EXPECT_FALSE(is_pending());
    EXPECT_EQ(run(WhyRun::NextCall), 1U) << why_run();
    ASSERT_DONE(through_door<Call::cuCtxSynchronize>());
    expect_filled(b_, block, seed_of_b);
    EXPECT_DONE(free(a_));
    EXPECT_EQ(elided(), 0U);
    expect_filled(b_, block, seed_of_b);
    EXPECT_DONE(free(b_));
  }

  CUstream stream_ = nullptr;
  CUevent event_ = nullptr;
  CUgraphExec graph_ = nullptr;
  CUdeviceptr other_ = 0;
  CUdeviceptr a_ = 0;
  CUdeviceptr b_ = 0;
  std::vector<std::uint32_t> host_ = std::vector<std::uint32_t>(other_bytes / 4);
};

TEST_F(DeferredCopyIsRunBy, ReadingTheOldBlockByACopy) {
  ASSERT_DONE(
      through_door<Call::cuMemcpyDtoH_v2>(static_cast<void*>(host_.data()), a_, other_bytes));
  expect_run();
}
TEST_F(DeferredCopyIsRunBy, ReadingTheNewBlockByACopy) {
  expect_filled(b_, block, 1);
  expect_run();
}
TEST_F(DeferredCopyIsRunBy, WritingTheOldBlockByACopy) {
  ASSERT_DONE(through_door<Call::cuMemcpyDtoD_v2>(a_, other_, other_bytes));
  expect_run();
}
TEST_F(DeferredCopyIsRunBy, WritingTheNewBlockByACopy) {
  ASSERT_DONE(through_door<Call::cuMemcpyDtoD_v2>(b_ + block, other_, other_bytes));
  expect_filled(b_ + block, other_bytes, 50);
  expect_run();
}
TEST_F(DeferredCopyIsRunBy, CopyingWhatWasCopied) {
  ASSERT_DONE(through_door<Call::cuMemcpyDtoDAsync_v2>(other_, b_, other_bytes, CUstream{}));
  ASSERT_DONE(through_door<Call::cuCtxSynchronize>());
  expect_filled(other_, other_bytes, 1);
  expect_run();
}
TEST_F(DeferredCopyIsRunBy, SettingTheOldBlock) {
  ASSERT_DONE(through_door<Call::cuMemsetD8_v2>(a_, static_cast<unsigned char>(9), block));
  expect_run();
}
TEST_F(DeferredCopyIsRunBy, SettingTheNewBlock) {
  ASSERT_DONE(through_door<Call::cuMemsetD8_v2>(b_ + block, static_cast<unsigned char>(9), block));
  expect_run();
}
TEST_F(DeferredCopyIsRunBy, ALaunchThatNamesNeither) {
  ASSERT_DONE(
      launch_through_door(kernels_->add_one, stream_, std::uint64_t{other_}, std::uint32_t{16}));
  expect_run();
}
// Adds to A after it was copied, and to the rest of A: B keeps what was copied.
TEST_F(DeferredCopyIsRunBy, ALaunchThatWritesTheOldBlock) {
  ASSERT_DONE(launch_through_door(kernels_->add_one, CUstream{}, std::uint64_t{a_},
                                  static_cast<std::uint32_t>(block / 4)));
  expect_run();
}
TEST_F(DeferredCopyIsRunBy, AGraphLaunch) {
  ASSERT_DONE(through_door<Call::cuGraphLaunch>(graph_, stream_));
  expect_run();
}
TEST_F(DeferredCopyIsRunBy, RecordingAnEvent) {
  ASSERT_DONE(through_door<Call::cuEventRecord>(event_, CUstream{}));
  ASSERT_DONE(through_door<Call::cuEventSynchronize>(event_));
  expect_run();
}
TEST_F(DeferredCopyIsRunBy, QueryingAnEvent) {
  ASSERT_DONE(through_door<Call::cuEventQuery>(event_));
  expect_run();
}
TEST_F(DeferredCopyIsRunBy, WaitingForAnEvent) {
  ASSERT_DONE(through_door<Call::cuEventSynchronize>(event_));
  expect_run();
}
TEST_F(DeferredCopyIsRunBy, QueryingAStream) {
  through_door<Call::cuStreamQuery>(stream_);
  expect_run();
}
TEST_F(DeferredCopyIsRunBy, WaitingForAStream) {
  ASSERT_DONE(through_door<Call::cuStreamSynchronize>(CUstream{}));
  expect_run();
}
TEST_F(DeferredCopyIsRunBy, WaitingForTheContext) {
  ASSERT_DONE(through_door<Call::cuCtxSynchronize>());
  expect_run();
}
TEST_F(DeferredCopyIsRunBy, AStreamThatWaitsForAnEvent) {
  ASSERT_DONE(through_door<Call::cuStreamWaitEvent>(stream_, event_, 0u));
  expect_run();
}
TEST_F(DeferredCopyIsRunBy, AWaitForAValue) {
  ASSERT_DONE(through_door<Call::cuStreamWaitValue32_v2>(stream_, other_, ~cuuint32_t{0},
                                                         unsigned{CU_STREAM_WAIT_VALUE_AND}));
  expect_run();
}
TEST_F(DeferredCopyIsRunBy, AValueThatIsWritten) {
  ASSERT_DONE(through_door<Call::cuStreamWriteValue32_v2>(stream_, other_, cuuint32_t{3}, 0u));
  expect_run();
}
TEST_F(DeferredCopyIsRunBy, AHostFunction) {
  static std::atomic<int> calls{0};
  calls = 0;
  ASSERT_DONE(through_door<Call::cuLaunchHostFunc>(
      CUstream{}, static_cast<CUhostFn>([](void*) { ++calls; }), static_cast<void*>(nullptr)));
  ASSERT_DONE(through_door<Call::cuCtxSynchronize>());
  EXPECT_EQ(calls, 1);
  expect_run();
}
TEST_F(DeferredCopyIsRunBy, ExportingAnIpcHandle) {
  CUipcMemHandle handle{};
  through_door<Call::cuIpcGetMemHandle>(&handle, b_);
  expect_run();
}
TEST_F(DeferredCopyIsRunBy, RetainingTheHandle) {
  CUmemGenericAllocationHandle handle{};
  through_door<Call::cuMemRetainAllocationHandle>(&handle, reinterpret_cast<void*>(b_));
  expect_run();
}
TEST_F(DeferredCopyIsRunBy, ADmaBuf) {
  int fd = -1;
  through_door<Call::cuMemGetHandleForAddressRange>(static_cast<void*>(&fd), b_, std::size_t{block},
                                                    CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0ull);
  const OwnedFd owned{fd};
  expect_run();
}
TEST_F(DeferredCopyIsRunBy, SyncMemops) {
  const unsigned on = 1;
  ASSERT_DONE(through_door<Call::cuPointerSetAttribute>(static_cast<const void*>(&on),
                                                        CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a_));
  expect_run();
}
TEST_F(DeferredCopyIsRunBy, PeerToPeerTokens) {
  CUDA_POINTER_ATTRIBUTE_P2P_TOKENS tokens{};
  through_door<Call::cuPointerGetAttribute>(static_cast<void*>(&tokens),
                                            CU_POINTER_ATTRIBUTE_P2P_TOKENS, b_);
  expect_run();
}
TEST_F(DeferredCopyIsRunBy, PeerToPeerTokensAmongOthers) {
  CUDA_POINTER_ATTRIBUTE_P2P_TOKENS tokens{};
  CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_P2P_TOKENS};
  void* answers[] = {&tokens};
  through_door<Call::cuPointerGetAttributes>(1u, which, answers, b_);
  expect_run();
}
TEST_F(DeferredCopyIsRunBy, PeerAccess) {
  through_door<Call::cuCtxEnablePeerAccess>(context_, 0u);
  expect_run();
}
TEST_F(DeferredCopyIsRunBy, AnotherAllocation) {
  EXPECT_DONE(free(given_block(other_bytes)));
  expect_run();
}
TEST_F(DeferredCopyIsRunBy, AChunkOfTheProgramsOwn) {
  CUmemGenericAllocationHandle chunk = 0;
  const CUmemAllocationProp where{.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
  ASSERT_DONE(through_door<Call::cuMemCreate>(&chunk, std::size_t{2 * MiB}, &where, 0ull));
  EXPECT_DONE(through_door<Call::cuMemRelease>(chunk));
  expect_run();
}
TEST_F(DeferredCopyIsRunBy, TheFreeOfAnotherBlock) {
  EXPECT_DONE(free(other_));
  expect_run();
}
TEST_F(DeferredCopyIsRunBy, AStreamOrderedFreeOfTheOldBlock) {
  ASSERT_DONE(through_door<Call::cuMemFreeAsync>(a_, stream_));
  EXPECT_FALSE(is_pending());
  ASSERT_DONE(through_door<Call::cuCtxSynchronize>());
  expect_filled(b_, block, 1);
  EXPECT_EQ(elided(), 0U);
  EXPECT_DONE(free(b_));
}
TEST_F(DeferredCopyIsRunBy, AnotherStreamsWork) {
  ASSERT_DONE(through_door<Call::cuMemsetD8Async>(other_, static_cast<unsigned char>(1),
                                                  std::size_t{64}, stream_));
  expect_run();
}
TEST_F(DeferredCopyIsRunBy, AnotherThreadsCall) {
  std::thread([&] {
    through_door<Call::cuCtxSetCurrent>(context_);
    EXPECT_DONE(through_door<Call::cuMemsetD8Async>(other_, static_cast<unsigned char>(1),
                                                    std::size_t{64}, stream_));
  }).join();
  expect_run();
}
TEST_F(DeferredCopyIsRunBy, ACaptureThatBegins) {
  ASSERT_DONE(through_door<Call::cuStreamBeginCapture_v2>(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_FALSE(is_pending());
  CUgraph graph = nullptr;
  ASSERT_DONE(through_door<Call::cuStreamEndCapture>(stream_, &graph));
  ASSERT_DONE(through_door<Call::cuGraphDestroy>(graph));
  expect_run();
}
// If its stream ends amid that capture, nothing but a wait for the context tells when the copy is
// done.
TEST_F(DeferredCopyIsRunBy, ACaptureAmidWhichItsStreamEnds) {
  constexpr Size large = 8 * block;
  ASSERT_DONE(through_door<Call::cuCtxSynchronize>());
  const CUdeviceptr from = given_filled(large, 2);
  const CUdeviceptr to = given_block(2 * large);
  ASSERT_DONE(through_door<Call::cuMemcpyDtoDAsync_v2>(to, from, std::size_t{large}, stream_));
  ASSERT_TRUE(is_pending()) << why_run();
  ASSERT_DONE(through_door<Call::cuStreamBeginCapture_v2>(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL));
  ASSERT_DONE(through_door<Call::cuStreamDestroy_v2>(stream_));

  if (Engine::get()->serving()->clock.is_all_done(context_)) {
    fill(from + large - block, block, 3);  // the copy comes to it last
  }
  ASSERT_DONE(through_door<Call::cuCtxSynchronize>());
  expect_filled(to, large, 2);
  for (const CUdeviceptr one : {a_, b_, from, to}) EXPECT_DONE(free(one));
}
TEST_F(DeferredCopyIsRunBy, TheEndOfAStream) {
  ASSERT_DONE(through_door<Call::cuStreamDestroy_v2>(stream_));
  expect_run();
}
TEST_F(DeferredCopyIsRunBy, TheFreeOfTheNewBlock) {
  EXPECT_DONE(free(b_));
  EXPECT_FALSE(is_pending());
  expect_filled(a_, block, 1);
  EXPECT_DONE(free(a_));
  EXPECT_EQ(elided(), 0U);
}
TEST_F(DeferredCopyIsRunBy, TheEndOfTheContext) {
  kernels_.reset();  // not through a door
  ASSERT_DONE(through_door<Call::cuDevicePrimaryCtxReset_v2>(0));
  EXPECT_FALSE(is_pending());
  EXPECT_NE(free(a_), CUDA_SUCCESS);
  EXPECT_EQ(elided(), 0U);
}
// Calls that only ask about addresses and sizes do not need the bytes.
TEST_F(DeferredCopyIsRunBy, NoMereQuery) {
  CUdeviceptr start = 0;
  size_t size = 0;
  size_t total = 0;
  ASSERT_DONE(through_door<Call::cuMemGetAddressRange_v2>(&start, &size, b_));
  ASSERT_DONE(through_door<Call::cuMemGetInfo_v2>(&size, &total));
  EXPECT_TRUE(is_pending());
  EXPECT_DONE(free(a_));
  EXPECT_EQ(elided(), 1U) << why_run();
  expect_filled(b_, block, 1);
}

// The same for every row of the driver's functions that could notice, called with nothing but
// zeros.
TEST_F(ResizeTest, EveryRowWithAnEffectRunsTheCopyFirst) {
  const CUdeviceptr a = given_filled(block, 1);
  std::uint64_t rows = 0;
  for (std::size_t row = 0; row < call_count; ++row) {
    const CallInfo& call = all_calls()[row];
    if (call.effect == Effect::Neutral) continue;
    // These end the context or the process's capture mode; they have tests of their own.
    if (call.name.starts_with("cuDevicePrimaryCtxRe")) continue;
    SCOPED_TRACE(call.symbol);
    const CUdeviceptr b = given_block(2 * block);
    ASSERT_DONE(copy(b, a, block));
    ASSERT_TRUE(is_pending()) << why_run();
    zero_calls[row](look_up(call.symbol));
    EXPECT_FALSE(is_pending());
    EXPECT_EQ(run(WhyRun::NextCall), ++rows);
    ASSERT_DONE(through_door<Call::cuCtxSetCurrent>(context_));
    ASSERT_DONE(through_door<Call::cuCtxSynchronize>());
    EXPECT_DONE(free(b));
  }
  EXPECT_EQ(elided(), 0U);
  EXPECT_GT(rows, 100U);
  EXPECT_DONE(free(a));
}

// Calls that pending work cannot observe: they query, prepare, or create things without device
// memory. Think about each new Neutral row before adding it here.
constexpr const char* neutral = R"(
cuGetErrorString cuGetErrorName cuInit cuDriverGetVersion cuGetExportTable cuGetProcAddress
cuGetProcAddress_v2 cuDeviceGet cuDeviceGetCount cuDeviceGetName cuDeviceGetUuid
cuDeviceGetUuid_v2 cuDeviceGetLuid cuDeviceTotalMem_v2 cuDeviceGetTexture1DLinearMaxWidth
cuDeviceGetAttribute cuDeviceGetHostAtomicCapabilities cuDeviceComputeCapability
cuDeviceGetExecAffinitySupport cuDeviceGetByPCIBusId cuDeviceGetPCIBusId cuDeviceCanAccessPeer
cuDeviceGetP2PAttribute cuDeviceGetP2PAtomicCapabilities cuDeviceGetDevResource
cuDevicePrimaryCtxRetain cuDevicePrimaryCtxSetFlags cuDevicePrimaryCtxSetFlags_v2
cuDevicePrimaryCtxGetState cuCtxGetId cuCtxPushCurrent cuCtxPushCurrent_v2 cuCtxPopCurrent
cuCtxPopCurrent_v2 cuCtxSetCurrent cuCtxGetCurrent cuCtxGetDevice cuCtxGetDevice_v2 cuCtxGetFlags
cuCtxSetFlags cuCtxSetLimit cuCtxGetLimit cuCtxGetCacheConfig cuCtxSetCacheConfig
cuCtxGetSharedMemConfig cuCtxSetSharedMemConfig cuCtxGetApiVersion cuCtxGetStreamPriorityRange
cuCtxResetPersistingL2Cache cuCtxAttach cuCtxGetExecAffinity cuGreenCtxCreate cuCtxGetDevResource
cuGreenCtxGetDevResource cuDevResourceGenerateDesc cuDevSmResourceSplitByCount cuCtxFromGreenCtx
cuGreenCtxGetId cuModuleGetFunction cuModuleGetGlobal_v2 cuModuleGetFunctionCount
cuModuleEnumerateFunctions cuLinkCreate cuLinkCreate_v2 cuLinkAddData cuLinkAddData_v2
cuLinkAddFile cuLinkAddFile_v2 cuLinkComplete cuLinkDestroy cuFuncGetAttribute cuFuncSetAttribute
cuFuncSetCacheConfig cuFuncSetSharedMemConfig cuFuncGetName cuFuncGetParamInfo cuFuncIsLoaded
cuFuncLoad cuFuncSetBlockShape cuFuncSetSharedSize cuOccupancyMaxActiveBlocksPerMultiprocessor
cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags cuOccupancyMaxPotentialBlockSize
cuOccupancyMaxPotentialBlockSizeWithFlags cuOccupancyAvailableDynamicSMemPerBlock
cuOccupancyMaxPotentialClusterSize cuOccupancyMaxActiveClusters cuFuncGetModule
cuModuleGetLoadingMode cuLibraryGetKernel cuLibraryGetModule cuLibraryGetKernelCount
cuLibraryEnumerateKernels cuKernelGetFunction cuKernelGetLibrary cuLibraryGetGlobal
cuLibraryGetManaged cuKernelGetAttribute cuKernelSetAttribute cuKernelSetCacheConfig
cuKernelGetName cuKernelGetParamInfo cuLibraryGetUnifiedFunction cuMemGetInfo_v2
cuMemGetAddressRange_v2 cuPointerGetAttribute cuMemRangeGetAttribute cuMemRangeGetAttributes
cuPointerGetAttributes cuMemHostGetDevicePointer_v2 cuMemHostGetFlags cuMemAdvise cuMemAdvise_v2
cuMemAddressReserve cuMemGetAccess cuMemImportFromShareableHandle cuMemGetAllocationGranularity
cuMemGetAllocationPropertiesFromHandle cuDeviceSetMemPool cuDeviceGetMemPool
cuDeviceGetDefaultMemPool cuMemPoolSetAttribute cuMemPoolGetAttribute cuMemPoolGetAccess
cuMemPoolCreate cuMemGetDefaultMemPool cuMemGetMemPool cuMemSetMemPool
cuMemPoolImportFromShareableHandle cuMemPoolImportPointer cuIpcGetEventHandle cuIpcOpenEventHandle
cuIpcOpenMemHandle cuIpcOpenMemHandle_v2 cuParamSetSize cuParamSeti cuParamSetf cuParamSetv
cuStreamCreate cuStreamCreateWithPriority cuStreamGetId cuStreamGetPriority cuStreamGetFlags
cuStreamGetCtx cuStreamGetCtx_v2 cuStreamCopyAttributes cuStreamGetAttribute cuStreamSetAttribute
cuStreamGetDevice cuStreamGetGreenCtx cuGreenCtxStreamCreate cuEventCreate
cuThreadExchangeStreamCaptureMode cuStreamIsCapturing cuStreamGetCaptureInfo
cuStreamGetCaptureInfo_v2 cuStreamGetCaptureInfo_v3 cuGraphCreate cuGraphKernelNodeGetParams
cuGraphKernelNodeGetParams_v2 cuGraphMemcpyNodeGetParams cuGraphMemsetNodeGetParams
cuGraphHostNodeGetParams cuGraphChildGraphNodeGetGraph cuGraphEventRecordNodeGetEvent
cuGraphEventWaitNodeGetEvent cuGraphExternalSemaphoresSignalNodeGetParams
cuGraphExternalSemaphoresWaitNodeGetParams cuGraphBatchMemOpNodeGetParams cuGraphNodeFindInClone
cuGraphNodeGetType cuGraphGetNodes cuGraphGetRootNodes cuGraphGetEdges cuGraphGetEdges_v2
cuGraphNodeGetDependencies cuGraphNodeGetDependencies_v2 cuGraphNodeGetDependentNodes
cuGraphNodeGetDependentNodes_v2 cuGraphExecGetFlags cuGraphKernelNodeGetAttribute
cuGraphDebugDotPrint cuGraphMemAllocNodeGetParams cuGraphMemFreeNodeGetParams
cuGraphNodeGetEnabled cuGraphConditionalHandleCreate cuDeviceGetGraphMemAttribute
cuDeviceSetGraphMemAttribute cuUserObjectCreate cuUserObjectRetain cuUserObjectRelease
cuImportExternalMemory cuExternalMemoryGetMappedBuffer cuExternalMemoryGetMappedMipmappedArray
cuImportExternalSemaphore cuGraphicsResourceGetMappedPointer_v2 cuFlushGPUDirectRDMAWrites
cuArrayGetDescriptor_v2 cuArrayGetSparseProperties cuMipmappedArrayGetSparseProperties
cuArrayGetMemoryRequirements cuMipmappedArrayGetMemoryRequirements cuArrayGetPlane
cuArray3DGetDescriptor_v2 cuMipmappedArrayGetLevel
cuCheckpointProcessGetState cuCheckpointProcessLock cuCheckpointProcessCheckpoint
cuCheckpointProcessRestore cuCheckpointProcessUnlock
cuMulticastCreate cuMulticastAddDevice
)";

TEST(NeutralCalls, AreThoseOfThisListAlone) {
  std::set<std::string> listed;
  std::istringstream words{neutral};
  for (std::string name; words >> name;) listed.insert(name);
  for (const CallInfo& call : all_calls()) {
    EXPECT_EQ(call.effect == Effect::Neutral, listed.contains(call.symbol)) << call.symbol;
  }
}

}  // namespace
}  // namespace cuvmm::test
