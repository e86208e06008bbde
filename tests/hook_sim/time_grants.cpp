// SPDX-License-Identifier: Apache-2.0
// Which calls wait for a time grant and count as in flight while processes share a device's time,
// and which never wait, because work in flight may depend on them.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "hook_sim/on_primary_context.hpp"
#include "hook_sim/simulated.hpp"
#include "support/driver_under_test.hpp"
#include "support/time_board.hpp"

namespace cuvmm::test {
namespace {

using node::TimeGrant;

const char* const ptx =
    ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry nothing()\n{\nret;\n}\n";
constexpr Size size = 1 * MiB;

// The engine's thread looks at the board until the process ends.
BoardFile& the_board() {
  static BoardFile& board = [&]() -> BoardFile& {
    CUuuid uuid{};
    EXPECT_DONE(through_door<Call::cuDeviceGetUuid_v2>(&uuid, 0));
    auto* const made = new BoardFile{uuid};
    auto* const grants = new lease::Grants;
    EXPECT_TRUE(grants->take(made->file()));
    auto* const leases = new lease::Leases{lease::LeaseSettings{}, *new NoTenant};
    Engine::get()->time_lease().begin(*leases, *grants);
    return *made;
  }();
  return board;
}

template <class Condition>
bool comes_true(Condition condition) {
  for (int i = 0; i < 20'000 && !condition(); ++i) ::usleep(1000);
  return condition();
}

// What the calls of these tests need.
class TimeSharing : public OnPrimaryContext {
 public:
  CUstream stream = nullptr;
  CUstream beside = nullptr;
  CUevent event = nullptr;
  CUfunction kernel = nullptr;
  CUgraphExec graph = nullptr;
  CUdeviceptr memory = 0;
  CUdeviceptr managed = 0;
  CUdeviceptr word = 0;  // pinned, and 0
  char* pinned = nullptr;
  std::atomic<bool> may_end{false};  // host functions that are stuck

  CUresult launch_on(CUstream where) const {
    void** const none = nullptr;
    return through_door<Call::cuLaunchKernel>(kernel, 1u, 1u, 1u, 1u, 1u, 1u, 0u, where, none,
                                              none);
  }

 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(OnPrimaryContext::SetUp());
    if (Engine::get()->serving() == nullptr) GTEST_SKIP() << "nothing is served";
    ASSERT_NO_FATAL_FAILURE(load());
    decide(TimeGrant::None);
    ASSERT_TRUE(comes_true([] { return Engine::get()->time_lease().counts(); }));
    // What load() has given the device may count as in flight for a moment.
    ASSERT_TRUE(comes_true([] { return board().words().wants.load() == 0; }));
  }
  void TearDown() override {
    if (IsSkipped()) return OnPrimaryContext::TearDown();
    decide(TimeGrant::Open);
    EXPECT_DONE(through_door<Call::cuCtxSynchronize>());
    EXPECT_TRUE(comes_true([] { return !Engine::get()->time_lease().counts(); }));
    EXPECT_TRUE(comes_true([] { return board().words().wants.load() == 0; }));
    OnPrimaryContext::TearDown();
  }

  // Makes what the calls need, in the current context.
  void load() {
    CUmodule module = nullptr;
    const void* const image = ptx;
    ASSERT_DONE(through_door<Call::cuModuleLoadData>(&module, image));
    ASSERT_DONE(through_door<Call::cuModuleGetFunction>(&kernel, module, "nothing"));
    ASSERT_DONE(through_door<Call::cuStreamCreate>(&stream, unsigned{CU_STREAM_NON_BLOCKING}));
    ASSERT_DONE(through_door<Call::cuStreamCreate>(&beside, unsigned{CU_STREAM_NON_BLOCKING}));
    ASSERT_DONE(through_door<Call::cuEventCreate>(&event, unsigned{CU_EVENT_DISABLE_TIMING}));
    ASSERT_DONE(through_door<Call::cuMemAlloc_v2>(&memory, std::size_t{size}));
    ASSERT_DONE(through_door<Call::cuMemAllocManaged>(&managed, std::size_t{size},
                                                      unsigned{CU_MEM_ATTACH_GLOBAL}));
    void* host = nullptr;
    ASSERT_DONE(through_door<Call::cuMemAllocHost_v2>(&host, std::size_t{size}));
    pinned = static_cast<char*>(host);
    std::fill_n(pinned, size, '\0');
    ASSERT_DONE(through_door<Call::cuMemHostGetDevicePointer_v2>(&word, host, 0u));
    make_graph();
  }

  static BoardFile& board() { return the_board(); }
  static void decide(TimeGrant grant) { board().decide(grant); }

 private:
  void make_graph() {
    CUgraph made = nullptr;
    CUgraphNode node = nullptr;
    CUDA_KERNEL_NODE_PARAMS one{};
    one.func = kernel;
    one.gridDimX = one.gridDimY = one.gridDimZ = 1;
    one.blockDimX = one.blockDimY = one.blockDimZ = 1;
    const CUgraphNode* const none = nullptr;
    const CUDA_KERNEL_NODE_PARAMS* const asked = &one;
    ASSERT_DONE(through_door<Call::cuGraphCreate>(&made, 0u));
    ASSERT_DONE(
        through_door<Call::cuGraphAddKernelNode_v2>(&node, made, none, std::size_t{0}, asked));
    ASSERT_DONE(through_door<Call::cuGraphInstantiateWithFlags>(&graph, made, 0ULL));
  }
};

struct Work {
  const char* name;
  CUresult (*call)(TimeSharing& test);
  bool is_simulated = true;  // otherwise the driver refuses it, once it has the call
};

template <Call call, class... Arguments>
CUresult through_per_thread_door(Arguments... arguments) {
  const auto door =
      reinterpret_cast<typename hook::Row<call>::Function>(look_up(info(call).per_thread_symbol));
  return door(arguments...);
}

void** const none = nullptr;

// By the forms of launches, copies and sets, and the streams that they name.
const Work waiting[] = {
    {"Kernel", [](TimeSharing& test) { return test.launch_on(test.stream); }},
    {"KernelOnTheLegacyStream", [](TimeSharing& test) { return test.launch_on(nullptr); }},
    {"KernelOnTheThreadsStream",
     [](TimeSharing& test) { return test.launch_on(CU_STREAM_PER_THREAD); }},
    {"KernelThroughThePerThreadDoor",
     [](TimeSharing& test) {
       return through_per_thread_door<Call::cuLaunchKernel>(test.kernel, 1u, 1u, 1u, 1u, 1u, 1u, 0u,
                                                            CUstream{}, none, none);
     }},
    {"KernelWithAttributes",
     [](TimeSharing& test) {
       CUlaunchAttribute attribute{};
       attribute.id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
       CUlaunchConfig config{};
       config.gridDimX = config.gridDimY = config.gridDimZ = 1;
       config.blockDimX = config.blockDimY = config.blockDimZ = 1;
       config.hStream = test.stream;
       config.attrs = &attribute;
       config.numAttrs = 1;
       const CUlaunchConfig* const asked = &config;
       return through_door<Call::cuLaunchKernelEx>(asked, test.kernel, none, none);
     }},
    {"CooperativeKernel",
     [](TimeSharing& test) {
       return through_door<Call::cuLaunchCooperativeKernel>(test.kernel, 1u, 1u, 1u, 1u, 1u, 1u, 0u,
                                                            test.stream, none);
     }},
    {"CooperativeKernelOfSeveralDevices",
     [](TimeSharing& test) {
       CUDA_LAUNCH_PARAMS one{};
       one.function = test.kernel;
       one.gridDimX = one.gridDimY = one.gridDimZ = 1;
       one.blockDimX = one.blockDimY = one.blockDimZ = 1;
       one.hStream = test.stream;
       return through_door<Call::cuLaunchCooperativeKernelMultiDevice>(&one, 1u, 0u);
     },
     false},
    {"KernelByTheOldestForm",
     [](TimeSharing& test) { return through_door<Call::cuLaunchGrid>(test.kernel, 1, 1); }, false},
    {"Graph",
     [](TimeSharing& test) { return through_door<Call::cuGraphLaunch>(test.graph, test.stream); }},
    {"CopyToTheDevice",
     [](TimeSharing& test) {
       const void* const from = test.pinned;
       return through_door<Call::cuMemcpyHtoDAsync_v2>(test.memory, from, std::size_t{size},
                                                       test.stream);
     }},
    {"CopyWithinTheDevice",
     [](TimeSharing& test) {
       return through_door<Call::cuMemcpyDtoDAsync_v2>(test.memory, test.memory + size / 2,
                                                       std::size_t{size / 2}, test.stream);
     }},
    {"CopyOfAnyKind",
     [](TimeSharing& test) {
       return through_door<Call::cuMemcpyAsync>(test.memory, test.word, std::size_t{size},
                                                test.stream);
     }},
    {"Set",
     [](TimeSharing& test) {
       return through_door<Call::cuMemsetD8Async>(test.memory, static_cast<unsigned char>(1),
                                                  std::size_t{size}, test.stream);
     }},
    {"SetOfRows",
     [](TimeSharing& test) {
       return through_door<Call::cuMemsetD2D32Async>(test.memory, std::size_t{512}, 7u,
                                                     std::size_t{16}, std::size_t{16}, test.stream);
     }},
    {"Prefetch",
     [](TimeSharing& test) {
       const CUmemLocation here{CU_MEM_LOCATION_TYPE_DEVICE, {0}};
       return through_door<Call::cuMemPrefetchAsync_v2>(test.managed, std::size_t{size}, here, 0u,
                                                        test.stream);
     }},
};

class DeviceWork : public TimeSharing, public ::testing::WithParamInterface<Work> {};

TEST_P(DeviceWork, WaitsForTheGrantAndIsInFlightThen) {
  std::atomic<bool> is_done{false};
  CUresult answer = CUDA_SUCCESS;
  std::thread program{[&] {
    EXPECT_DONE(through_door<Call::cuCtxSetCurrent>(context_));
    answer = GetParam().call(*this);
    is_done = true;
  }};
  EXPECT_TRUE(comes_true([&] { return board().words().wants.load() == 1; }));
  ::usleep(5'000);
  EXPECT_FALSE(is_done);
  board().words().in_flight_until_ns = 0;
  decide(TimeGrant::Held);
  EXPECT_TRUE(comes_true([&] { return is_done.load(); }));
  program.join();
  EXPECT_EQ(answer == CUDA_SUCCESS, GetParam().is_simulated) << answer;
  EXPECT_NE(board().words().in_flight_until_ns.load(), 0u);
}

INSTANTIATE_TEST_SUITE_P(All, DeviceWork, ::testing::ValuesIn(waiting),
                         [](const auto& work) { return work.param.name; });

const Work passing[] = {
    {"HostFunction",
     [](TimeSharing& test) {
       const CUhostFn nothing = [](void* /*data*/) {};
       return through_door<Call::cuLaunchHostFunc>(test.stream, nothing,
                                                   static_cast<void*>(nullptr));
     }},
    {"Callback",
     [](TimeSharing& test) {
       const CUstreamCallback nothing = [](CUstream, CUresult, void* /*data*/) {};
       return through_door<Call::cuStreamAddCallback>(test.stream, nothing,
                                                      static_cast<void*>(nullptr), 0u);
     }},
    {"EventRecord",
     [](TimeSharing& test) { return through_door<Call::cuEventRecord>(test.event, test.stream); }},
    {"EventWait",
     [](TimeSharing& test) {
       return through_door<Call::cuStreamWaitEvent>(test.stream, test.event, 0u);
     }},
    {"ValueWait",
     [](TimeSharing& test) {
       return through_door<Call::cuStreamWaitValue32_v2>(test.stream, test.word, 0u,
                                                         unsigned{CU_STREAM_WAIT_VALUE_EQ});
     }},
    {"ValueWrite",
     [](TimeSharing& test) {
       return through_door<Call::cuStreamWriteValue32_v2>(test.stream, test.word, 1u, 0u);
     }},
    {"Allocation",
     [](TimeSharing& test) {
       CUdeviceptr block = 0;
       const CUresult made =
           through_door<Call::cuMemAllocAsync>(&block, std::size_t{size}, test.stream);
       return made != CUDA_SUCCESS ? made : through_door<Call::cuMemFreeAsync>(block, test.stream);
     }},
    {"Synchronization",
     [](TimeSharing& test) { return through_door<Call::cuStreamSynchronize>(test.stream); }},
};

class OrderingWork : public TimeSharing, public ::testing::WithParamInterface<Work> {};

TEST_P(OrderingWork, PassesWithoutAGrant) {
  EXPECT_DONE(GetParam().call(*this));
  EXPECT_EQ(board().words().wants.load(), 0u) << "it has asked for a grant";
}

INSTANTIATE_TEST_SUITE_P(All, OrderingWork, ::testing::ValuesIn(passing),
                         [](const auto& work) { return work.param.name; });

CUresult run_stuck_function(TimeSharing& test, CUstream stream) {
  return through_door<Call::cuLaunchHostFunc>(stream, until_it_may,
                                              static_cast<void*>(&test.may_end));
}

const Work holding[] = {
    {"HostFunction", [](TimeSharing& test) { return run_stuck_function(test, test.stream); }},
    {"Callback",
     [](TimeSharing& test) {
       const CUstreamCallback stuck = [](CUstream, CUresult, void* may_end) {
         until_it_may(may_end);
       };
       return through_door<Call::cuStreamAddCallback>(test.stream, stuck,
                                                      static_cast<void*>(&test.may_end), 0u);
     }},
    {"EventWait",
     [](TimeSharing& test) {
       EXPECT_DONE(run_stuck_function(test, test.beside));
       EXPECT_DONE(through_door<Call::cuEventRecord>(test.event, test.beside));
       return through_door<Call::cuStreamWaitEvent>(test.stream, test.event, 0u);
     }},
    {"ValueWait",
     [](TimeSharing& test) {
       return through_door<Call::cuStreamWaitValue32_v2>(test.stream, test.word, 1u,
                                                         unsigned{CU_STREAM_WAIT_VALUE_EQ});
     }},
    {"BatchOfValueWaits",
     [](TimeSharing& test) {
       CUstreamBatchMemOpParams one{};
       one.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
       one.waitValue.address = test.word;
       one.waitValue.value = 1;
       one.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
       return through_door<Call::cuStreamBatchMemOp_v2>(test.stream, 1u, &one, 0u);
     }},
};

class AfterShortKernels : public TimeSharing {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(TimeSharing::SetUp());
    if (IsSkipped()) return;
    decide(TimeGrant::Held);
    // From then on such a kernel is known to be short, and needs no mark of its own.
    for (int i = 0; i < 100; ++i) {
      ASSERT_DONE(launch_on(beside));
      ASSERT_DONE(through_door<Call::cuStreamSynchronize>(beside));
      Engine::get()->time_lease().forget_ended_work();
    }
  }
  static bool drains_within(int milliseconds) {
    for (int i = 0; i < milliseconds && !board().is_drained(); ++i) ::usleep(1000);
    return board().is_drained();
  }
};

class WorkOnAHeldStream : public AfterShortKernels, public ::testing::WithParamInterface<Work> {};

TEST_P(WorkOnAHeldStream, IsInFlightUntilItHasEnded) {
  EXPECT_DONE(GetParam().call(*this));
  EXPECT_DONE(launch_on(stream));
  decide(TimeGrant::None);
  EXPECT_FALSE(drains_within(50)) << "another process would get the grant";
  may_end = true;
  std::atomic_ref<char>{* pinned} = 1;
  EXPECT_TRUE(drains_within(20'000));
}

INSTANTIATE_TEST_SUITE_P(All, WorkOnAHeldStream, ::testing::ValuesIn(holding),
                         [](const auto& work) { return work.param.name; });

class WorkAcrossTheLegacyBarrier : public AfterShortKernels {
 protected:
  // Work of `stream` waits for earlier work of `held`.
  void expect_in_flight(CUstream held, CUstream stream) {
    EXPECT_DONE(run_stuck_function(*this, held));
    EXPECT_DONE(launch_on(stream));
    decide(TimeGrant::None);
    EXPECT_FALSE(drains_within(50)) << "another process would get the grant";
    may_end = true;
    EXPECT_TRUE(drains_within(20'000));
  }
  static CUstream blocking_stream() {
    CUstream stream = nullptr;
    EXPECT_DONE(through_door<Call::cuStreamCreate>(&stream, unsigned{CU_STREAM_DEFAULT}));
    return stream;
  }
};

TEST_F(WorkAcrossTheLegacyBarrier, IsInFlightWhileTheLegacyStreamIsHeld) {
  expect_in_flight(CU_STREAM_LEGACY, blocking_stream());
}

TEST_F(WorkAcrossTheLegacyBarrier, IsInFlightWhileABlockingStreamIsHeld) {
  expect_in_flight(blocking_stream(), CU_STREAM_LEGACY);
}

TEST_F(WorkAcrossTheLegacyBarrier, IsInFlightOnTheThreadsStreamToo) {
  expect_in_flight(CU_STREAM_LEGACY, CU_STREAM_PER_THREAD);
}

// Retains the primary context once more and releases it again.
void release_one_of_several() {
  CUcontext context = nullptr;
  EXPECT_DONE(through_door<Call::cuDevicePrimaryCtxRetain>(&context, 0));
  EXPECT_DONE(through_door<Call::cuDevicePrimaryCtxRelease_v2>(0));
}

using ReleaseOfAPrimaryContextInUse = AfterShortKernels;

TEST_F(ReleaseOfAPrimaryContextInUse, LeavesItsWorkInFlight) {
  EXPECT_DONE(run_stuck_function(*this, stream));
  EXPECT_DONE(launch_on(stream));
  release_one_of_several();
  decide(TimeGrant::None);
  EXPECT_FALSE(drains_within(50)) << "another process would get the grant";
  may_end = true;
  EXPECT_TRUE(drains_within(20'000));
}

TEST_F(ReleaseOfAPrimaryContextInUse, KeepsItsEvents) {
  const CUhostFn nothing = [](void* /*data*/) {};
  const std::uint64_t before = sim()->calls("cuEventCreate");
  constexpr int rounds = 20;
  for (int i = 0; i < rounds; ++i) {
    EXPECT_DONE(through_door<Call::cuLaunchHostFunc>(stream, nothing, static_cast<void*>(nullptr)));
    EXPECT_DONE(launch_on(stream));
    EXPECT_DONE(through_door<Call::cuStreamSynchronize>(stream));
    Engine::get()->time_lease().forget_ended_work();
    release_one_of_several();
  }
  EXPECT_LT(sim()->calls("cuEventCreate") - before, rounds / 2u);
}

using PrimaryContextThatEnds = AfterShortKernels;

// Events of the old context must not serve the new one, whose work would not be in flight.
TEST_F(PrimaryContextThatEnds, TakesItsEventsAlong) {
  EXPECT_DONE(through_door<Call::cuDevicePrimaryCtxReset_v2>(0));
  EXPECT_DONE(through_door<Call::cuDevicePrimaryCtxRetain>(&context_, 0));
  EXPECT_DONE(through_door<Call::cuCtxSetCurrent>(context_));
  load();
  EXPECT_DONE(run_stuck_function(*this, stream));
  EXPECT_DONE(launch_on(stream));
  decide(TimeGrant::None);
  EXPECT_FALSE(drains_within(50)) << "another process would get the grant";
  may_end = true;
  EXPECT_TRUE(drains_within(20'000));
}

}  // namespace
}  // namespace cuvmm::test
