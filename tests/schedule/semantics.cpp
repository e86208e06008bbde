// SPDX-License-Identifier: Apache-2.0
// What answers a scheduled program gets, and when.
#include <array>
#include <functional>

#include "schedule/schedule_world.hpp"

namespace cuvmm::test {
namespace {

class Semantics : public testing::Test {
 protected:
  Semantics() { client_.bind(); }

  const Deadline deadline_;
  const GivenContext context_;
  const Kernels kernels_;
  const Scheduled scheduled_{Schedule::Fifo};
  const GivenClient client_{"client"};
};

struct Held {
  std::atomic<bool> goes_on{false};
  static void wait(void* held) {
    while (!static_cast<Held*>(held)->goes_on) {
      std::this_thread::sleep_for(std::chrono::microseconds{100});
    }
  }
  ~Held() { goes_on = true; }
};

CUlaunchConfig one_thread_on(CUstream stream) {
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream;
  return config;
}

TEST_F(Semantics, ErrorsOfTheDriverAreReportedAtTheCall) {
  const HookedStream stream;
  std::uint64_t nanoseconds = 0;
  void* parameters[] = {&nanoseconds};
  const auto launch = [&](CUfunction function, unsigned grid, unsigned block, unsigned shared,
                          CUstream on, void** given) {
    return hooked().cuLaunchKernel(function, grid, 1, 1, block, 1, 1, shared, on, given, nullptr);
  };
  EXPECT_CUDA(launch(kernels_.spin, 1, 1, 0, stream, parameters));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, launch(kernels_.spin, 0, 1, 0, stream, parameters));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, launch(kernels_.spin, 1, 4096, 0, stream, parameters));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, launch(kernels_.spin, 1, 1, 1 << 30, stream, parameters));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, launch(kernels_.spin, 1, 1, 0, stream, nullptr));
  EXPECT_NE(launch(nullptr, 1, 1, 0, stream, parameters), CUDA_SUCCESS);
  CUdeviceptr memory = 0;
  ASSERT_CUDA(hooked().cuMemAlloc(&memory, 4096));
  EXPECT_NE(hooked().cuMemsetD32Async(memory + 2, 0, 4, stream), CUDA_SUCCESS);
  EXPECT_NE(hooked().cuMemsetD2D8Async(memory, 16, 0, 32, 4, stream), CUDA_SUCCESS);
  EXPECT_NE(hooked().cuMemsetD2D32Async(memory, 66, 0, 8, 4, stream), CUDA_SUCCESS);
  EXPECT_NE(hooked().cuMemsetD2D16(memory, 65, 0, 8, 4), CUDA_SUCCESS);
  EXPECT_NE(hooked().cuMemFreeAsync(memory + 64, stream), CUDA_SUCCESS);
  EXPECT_CUDA(hooked().cuMemFreeAsync(memory, stream));
  // The error comes from the call itself or, if the first free has not been issued yet, from the
  // wait.
  const CUresult again = hooked().cuMemFreeAsync(memory, stream);
  const CUresult waited = hooked().cuStreamSynchronize(stream);
  EXPECT_TRUE(again != CUDA_SUCCESS || waited != CUDA_SUCCESS);
}

TEST_F(Semantics, ParametersAreThoseOfTheCall) {
  CUdeviceptr memory = 0;
  ASSERT_CUDA(hooked().cuMemAlloc(&memory, 4 * 4));
  const HookedStream stream;
  Held held;
  ASSERT_CUDA(hooked().cuLaunchHostFunc(stream, &Held::wait, &held));
  for (std::uint32_t i = 0; i < 4; ++i) {
    std::uint64_t address = memory + 4 * i;
    std::uint32_t value = i + 1;
    std::uint32_t words = 1;
    void* parameters[] = {&address, &value, &words};
    struct {
      std::uint64_t address;
      std::uint32_t value, words;
    } packed{address, value, words};
    std::size_t size = sizeof packed;
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};
    const bool is_packed = i % 2 == 1;
    ASSERT_CUDA(hooked().cuLaunchKernel(kernels_.fill, 1, 1, 1, 1, 1, 1, 0, stream,
                                        is_packed ? nullptr : parameters,
                                        is_packed ? extra : nullptr));
    address = value = words = 0;
    packed = {};
    size = 0;
  }
  held.goes_on = true;
  ASSERT_CUDA(hooked().cuStreamSynchronize(stream));
  std::uint32_t found[4] = {};
  ASSERT_CUDA(hooked().cuMemcpyDtoH(found, memory, sizeof found));
  for (std::uint32_t i = 0; i < 4; ++i) EXPECT_EQ(found[i], i + 1);
  EXPECT_CUDA(hooked().cuMemFree(memory));
}

// As cuBLAS launches. More launches than may be in flight, so none waits for its turn.
TEST_F(Semantics, ConfiguredLaunchesWithPackedParametersAreQueued) {
  CUdeviceptr memory = 0;
  ASSERT_CUDA(hooked().cuMemAlloc(&memory, 4));
  const HookedStream stream;
  ASSERT_CUDA(hooked().cuMemsetD32Async(memory, 0, 1, stream));
  Held held;
  ASSERT_CUDA(hooked().cuLaunchHostFunc(stream, &Held::wait, &held));
  for (int i = 0; i < 500; ++i) {
    struct {
      std::uint64_t address;
      std::uint32_t words;
    } packed{memory, 1};
    std::size_t size = sizeof packed;
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};
    CUlaunchConfig config = one_thread_on(stream);
    ASSERT_CUDA(hooked().cuLaunchKernelEx(&config, kernels_.add_one, nullptr, extra));
    packed = {};
    size = 0;
    config = {};
  }
  held.goes_on = true;
  ASSERT_CUDA(hooked().cuStreamSynchronize(stream));
  std::uint32_t found = 0;
  ASSERT_CUDA(hooked().cuMemcpyDtoH(&found, memory, 4));
  EXPECT_EQ(found, 500U);
  EXPECT_CUDA(hooked().cuMemFree(memory));
}

TEST_F(Semantics, ConfiguredLaunchesKeepTheirAttributes) {
  CUdeviceptr memory = 0;
  ASSERT_CUDA(hooked().cuMemAlloc(&memory, 4));
  const HookedStream stream;
  {
    std::uint64_t address = memory;
    std::uint32_t value = 9;
    std::uint32_t words = 1;
    void* parameters[] = {&address, &value, &words};
    CUlaunchAttribute attribute{};
    attribute.id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
    CUlaunchConfig config = one_thread_on(stream);
    config.attrs = &attribute;
    config.numAttrs = 1;
    ASSERT_CUDA(hooked().cuLaunchKernelEx(&config, kernels_.fill, parameters, nullptr));
    attribute = {};
    config = {};
  }
  ASSERT_CUDA(hooked().cuStreamSynchronize(stream));
  std::uint32_t found = 0;
  ASSERT_CUDA(hooked().cuMemcpyDtoH(&found, memory, 4));
  EXPECT_EQ(found, 9U);
  EXPECT_CUDA(hooked().cuMemFree(memory));
}

TEST_F(Semantics, QueriesOfQueuedWorkAnswerNotReady) {
  const HookedStream stream;
  CUevent event = nullptr;
  ASSERT_CUDA(hooked().cuEventCreate(&event, CU_EVENT_DEFAULT));
  Held held;
  ASSERT_CUDA(hooked().cuLaunchHostFunc(stream, &Held::wait, &held));
  ASSERT_CUDA(hooked().cuEventRecord(event, stream));
  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, hooked().cuStreamQuery(stream));
  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, hooked().cuEventQuery(event));
  held.goes_on = true;
  EXPECT_CUDA(hooked().cuEventSynchronize(event));
  EXPECT_CUDA(hooked().cuEventQuery(event));
  EXPECT_CUDA(hooked().cuEventDestroy(event));
}

TEST_F(Semantics, ThreadsWithoutAClientComeAfterQueuedWork) {
  CUdeviceptr memory = 0;
  ASSERT_CUDA(hooked().cuMemAlloc(&memory, 4));
  const HookedStream stream;
  for (int i = 0; i < 100; ++i) {
    ASSERT_CUDA(launch_hooked(kernels_.fill, stream.get(), std::uint64_t{memory}, 1u, 1u));
  }
  std::thread{[&] {
    context_.make_current();
    EXPECT_CUDA(launch_hooked(kernels_.fill, stream.get(), std::uint64_t{memory}, 2u, 1u));
  }}.join();
  std::uint32_t found = 0;
  ASSERT_CUDA(hooked().cuStreamSynchronize(stream));
  ASSERT_CUDA(hooked().cuMemcpyDtoH(&found, memory, 4));
  EXPECT_EQ(found, 2U);
  EXPECT_CUDA(hooked().cuMemFree(memory));
}

TEST_F(Semantics, AStickyErrorIsReportedByTheWaitAndAllLaterCalls) {
  CUcontext context = nullptr;
  ASSERT_CUDA(hooked().cuCtxCreate_v3020(&context, 0, 0));
  CUmodule module = nullptr;
  CUfunction fill = nullptr;
  ASSERT_CUDA(hooked().cuModuleLoadData(&module, kernels_ptx()));
  ASSERT_CUDA(hooked().cuModuleGetFunction(&fill, module, "fill"));
  CUstream stream = nullptr;
  ASSERT_CUDA(hooked().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  EXPECT_CUDA(launch_hooked(fill, stream, std::uint64_t{0x1000}, 1u, 1u));
  EXPECT_ANSWER(CUDA_ERROR_ILLEGAL_ADDRESS, hooked().cuStreamSynchronize(stream));
  EXPECT_ANSWER(CUDA_ERROR_ILLEGAL_ADDRESS,
                launch_hooked(fill, stream, std::uint64_t{0x1000}, 1u, 1u));
  EXPECT_ANSWER(CUDA_ERROR_ILLEGAL_ADDRESS, hooked().cuCtxSynchronize_v2000());
  hooked().cuCtxDestroy(context);
  context_.make_current();
}

// By whichever call the program learns of the error; and the end of another context repairs
// nothing.
TEST_F(Semantics, NothingIsQueuedOnceAnyCallHasReportedAStickyError) {
  using Report = std::function<CUresult(CUdeviceptr, CUevent)>;
  const auto reports = std::to_array<Report>({
      [](CUdeviceptr memory, CUevent) {
        std::uint32_t word = 0;
        return hooked().cuMemcpyDtoH(&word, memory, 4);
      },
      [](CUdeviceptr, CUevent event) { return hooked().cuEventSynchronize(event); },
      [](CUdeviceptr, CUevent event) {
        CUresult answer = CUDA_ERROR_NOT_READY;
        while (answer == CUDA_ERROR_NOT_READY) answer = hooked().cuEventQuery(event);
        return answer;
      },
      [](CUdeviceptr memory, CUevent) { return hooked().cuMemFree(memory); },
  });
  for (const Report& report : reports) {
    CUcontext unrelated = nullptr;
    ASSERT_CUDA(hooked().cuCtxCreate_v3020(&unrelated, 0, 0));
    const auto [lost, fill, stream, event] = DoomedContext{CU_STREAM_DEFAULT};
    CUdeviceptr memory = 0;
    ASSERT_CUDA(hooked().cuMemAlloc(&memory, 4));
    Held held;  // until the driver has accepted the record
    EXPECT_CUDA(hooked().cuLaunchHostFunc(stream, &Held::wait, &held));
    EXPECT_CUDA(launch_hooked(fill, stream, std::uint64_t{0x1000}, 1u, 1u));
    EXPECT_CUDA(hooked().cuEventRecord(event, stream));
    scheduled_.scheduler().settle_all();
    held.goes_on = true;
    while (driver().cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) ::usleep(100);
    EXPECT_ANSWER(CUDA_ERROR_ILLEGAL_ADDRESS, report(memory, event));
    EXPECT_ANSWER(CUDA_ERROR_ILLEGAL_ADDRESS,
                  launch_hooked(fill, stream, std::uint64_t{memory}, 1u, 1u));
    EXPECT_CUDA(hooked().cuCtxDestroy(unrelated));
    EXPECT_CUDA(hooked().cuCtxSetCurrent(lost));
    EXPECT_ANSWER(CUDA_ERROR_ILLEGAL_ADDRESS,
                  launch_hooked(fill, stream, std::uint64_t{memory}, 1u, 1u));
    hooked().cuCtxDestroy(lost);
    context_.make_current();
  }
}

TEST_F(Semantics, ACaptureRecordsTheWorkOfItsStream) {
  CUdeviceptr memory = 0;
  ASSERT_CUDA(hooked().cuMemAlloc(&memory, 4));
  const HookedStream stream;
  const HookedStream other;
  ASSERT_CUDA(launch_hooked(kernels_.fill, stream.get(), std::uint64_t{memory}, 1u, 1u));
  ASSERT_CUDA(hooked().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  ASSERT_CUDA(launch_hooked(kernels_.add_one, stream.get(), std::uint64_t{memory}, 1u));
  std::thread{[&] {  // another thread's queued work breaks no capture
    context_.make_current();
    client_.bind();
    std::uint64_t none = 0;
    for (int i = 0; i < 20; ++i) EXPECT_CUDA(launch_hooked(kernels_.spin, other.get(), none));
  }}
      .join();
  CUgraph graph = nullptr;
  ASSERT_CUDA(hooked().cuStreamEndCapture(stream, &graph));
  CUgraphExec executable = nullptr;
  ASSERT_CUDA(hooked().cuGraphInstantiateWithFlags(&executable, graph, 0));
  for (int i = 0; i < 5; ++i) ASSERT_CUDA(hooked().cuGraphLaunch(executable, stream));
  std::uint32_t found = 0;
  ASSERT_CUDA(hooked().cuStreamSynchronize(stream));
  ASSERT_CUDA(hooked().cuMemcpyDtoH(&found, memory, 4));
  EXPECT_EQ(found, 6U);
  EXPECT_CUDA(hooked().cuGraphExecDestroy(executable));
  EXPECT_CUDA(hooked().cuGraphDestroy(graph));
  EXPECT_CUDA(hooked().cuMemFree(memory));
}

// The scheduler marks its issued work on the legacy stream, which would break the capture of a
// stream that waits for the legacy stream.
TEST_F(Semantics, ACaptureBehindQueuedWorkIsNotBroken) {
  CUdeviceptr memory = 0;
  ASSERT_CUDA(hooked().cuMemAlloc(&memory, 4096));
  CUstream stream = nullptr;
  ASSERT_CUDA(hooked().cuStreamCreate(&stream, CU_STREAM_DEFAULT));
  for (std::uint64_t round = 0; round < 50 + scaled(450); ++round) {
    ASSERT_CUDA(hooked().cuMemsetD32Async(memory, 1, 16, nullptr));
    ASSERT_CUDA(hooked().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ASSERT_CUDA(hooked().cuMemsetD32Async(memory, 2, 16, stream));
    CUgraph graph = nullptr;
    ASSERT_CUDA(hooked().cuStreamEndCapture(stream, &graph));
    ASSERT_CUDA(hooked().cuGraphDestroy(graph));
  }
  EXPECT_CUDA(hooked().cuStreamDestroy(stream));
  EXPECT_CUDA(hooked().cuMemFree(memory));
}

// As libraries do before each of their launches; with more queued than may be in flight.
TEST_F(Semantics, SettingAnUnchangedAttributeWaitsForNothing) {
  CUdeviceptr memory = 0;
  ASSERT_CUDA(hooked().cuMemAlloc(&memory, 4));
  constexpr auto attribute = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  int set = 0;
  ASSERT_CUDA(hooked().cuFuncGetAttribute(&set, attribute, kernels_.add_one));
  const HookedStream stream;
  Held held;
  ASSERT_CUDA(hooked().cuLaunchHostFunc(stream, &Held::wait, &held));
  for (int i = 0; i < 500; ++i) {
    ASSERT_CUDA(launch_hooked(kernels_.add_one, stream.get(), std::uint64_t{memory}, 1u));
  }
  EXPECT_CUDA(hooked().cuFuncSetAttribute(kernels_.add_one, attribute, set));
  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, hooked().cuStreamQuery(stream));
  held.goes_on = true;
  EXPECT_CUDA(hooked().cuStreamSynchronize(stream));
  EXPECT_CUDA(hooked().cuMemFree(memory));
}

// Only the driver knows whether clusters fit the device: it is asked once.
TEST_F(Semantics, LaunchesWithClustersAreQueuedOnceTheDriverHasTakenOne) {
  CUdeviceptr address = 0;
  ASSERT_CUDA(hooked().cuMemAlloc(&address, 4));
  const HookedStream stream;
  std::uint32_t words = 1;
  void* parameters[] = {&address, &words};
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attribute.value.clusterDim = {1, 1, 1};
  CUlaunchConfig config = one_thread_on(stream);
  config.attrs = &attribute;
  config.numAttrs = 1;
  ASSERT_CUDA(hooked().cuMemsetD32Async(address, 0, 1, stream));
  ASSERT_CUDA(hooked().cuLaunchKernelEx(&config, kernels_.add_one, parameters, nullptr));
  Held held;
  ASSERT_CUDA(hooked().cuLaunchHostFunc(stream, &Held::wait, &held));
  for (int i = 0; i < 500; ++i) {
    ASSERT_CUDA(hooked().cuLaunchKernelEx(&config, kernels_.add_one, parameters, nullptr));
  }
  held.goes_on = true;
  ASSERT_CUDA(hooked().cuStreamSynchronize(stream));
  std::uint32_t found = 0;
  ASSERT_CUDA(hooked().cuMemcpyDtoH(&found, address, 4));
  EXPECT_EQ(found, 501U);
  EXPECT_CUDA(hooked().cuMemFree(address));
}

// Otherwise the queued wait would wait for the launch.
TEST_F(Semantics, ALaunchThatRecordsAnEventComesAfterQueuedWaitsForIt) {
  scheduling().set_policy(Schedule::Priority);
  const GivenClient urgent{"urgent", 5};
  const HookedStream stream;
  const HookedStream other;
  CUevent event = nullptr;
  ASSERT_CUDA(hooked().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  ASSERT_CUDA(hooked().cuEventRecord(event, other));
  Held held;
  ASSERT_CUDA(hooked().cuLaunchHostFunc(stream, &Held::wait, &held));
  for (int i = 0; i < 300; ++i) {  // more than may be in flight
    ASSERT_CUDA(launch_hooked(kernels_.spin, stream.get(), std::uint64_t{0}));
  }
  ASSERT_CUDA(hooked().cuStreamWaitEvent(stream, event, 0));
  urgent.bind();
  std::uint64_t nanoseconds = 0;
  void* parameters[] = {&nanoseconds};
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT;
  attribute.value.programmaticEvent.event = event;
  CUlaunchConfig config = one_thread_on(other);
  config.attrs = &attribute;
  config.numAttrs = 1;
  // The simulated driver refuses the attribute.
  static_cast<void>(hooked().cuLaunchKernelEx(&config, kernels_.spin, parameters, nullptr));
  EXPECT_TRUE(client_.get().lane(0)->is_empty());
  held.goes_on = true;
  EXPECT_CUDA(hooked().cuStreamSynchronize(stream));
  EXPECT_CUDA(hooked().cuEventDestroy(event));
}

TEST_F(Semantics, TurningOffLosesNothing) {
  CUdeviceptr memory = 0;
  ASSERT_CUDA(hooked().cuMemAlloc(&memory, 4));
  ASSERT_CUDA(hooked().cuMemsetD32(memory, 0, 1));
  ASSERT_CUDA(hooked().cuCtxSynchronize_v2000());
  const HookedStream stream;
  std::atomic<bool> ends{false};
  std::thread switches{[&] {
    while (!ends) {
      scheduling().set_policy(Schedule::Off);
      scheduling().set_policy(Schedule::Fair);
    }
  }};
  for (int i = 0; i < 2000; ++i) {
    EXPECT_CUDA(launch_hooked(kernels_.add_one, stream.get(), std::uint64_t{memory}, 1u));
  }
  ends = true;
  switches.join();
  std::uint32_t found = 0;
  EXPECT_CUDA(hooked().cuStreamSynchronize(stream));
  EXPECT_CUDA(hooked().cuMemcpyDtoH(&found, memory, 4));
  EXPECT_EQ(found, 2000U);
  EXPECT_CUDA(hooked().cuMemFree(memory));
}

// On memory that the driver serves, as all memory is in monitor mode.
TEST_F(Semantics, SetsOfSyncMemopsMemoryAreDoneWhenTheyReturn) {
  CUdeviceptr memory = 0;
  const unsigned on = 1;
  ASSERT_CUDA(driver().cuMemAlloc(&memory, 4));
  ASSERT_CUDA(driver().cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory));
  ASSERT_CUDA(launch_hooked(kernels_.spin, CU_STREAM_LEGACY, std::uint64_t{30'000'000}));
  ASSERT_CUDA(hooked().cuMemsetD32(memory, 7, 1));
  const HookedStream other;  // waits for nothing
  std::uint32_t found = 0;
  EXPECT_CUDA(driver().cuMemcpyDtoHAsync(&found, memory, 4, other));
  EXPECT_CUDA(driver().cuStreamSynchronize(other));
  EXPECT_EQ(found, 7U);
  EXPECT_CUDA(driver().cuMemFree(memory));
}

// As from within a call of cuvmm's or the driver's on the same thread.
TEST_F(Semantics, ACallFromWithinAnotherPassesThrough) {
  const HookedStream stream;
  CUdeviceptr memory = 0;
  ASSERT_CUDA(hooked().cuStreamSynchronize(stream));
  const std::uint64_t before = client_.get().figures().operations;
  {
    const HookBypass bypass;
    ASSERT_CUDA(hooked().cuMemAllocAsync(&memory, 4, stream));
    EXPECT_FALSE(Engine::get()->serving() != nullptr &&
                 Engine::get()->serving()->memory.find(memory));
    EXPECT_CUDA(hooked().cuMemsetD32Async(memory, 1, 1, stream));
    EXPECT_CUDA(launch_hooked(kernels_.add_one, stream.get(), std::uint64_t{memory}, 1u));
    EXPECT_CUDA(hooked().cuMemFreeAsync(memory, stream));
    EXPECT_CUDA(hooked().cuStreamSynchronize(stream));
  }
  EXPECT_EQ(client_.get().figures().operations, before);
}

TEST_F(Semantics, RefusedCallsCopyNoBytes) {
  CUdeviceptr memory = 0;
  ASSERT_CUDA(hooked().cuMemAlloc(&memory, 4096));
  const HookedStream stream;
  const std::uint64_t before = client_.get().figures().bytes;
  EXPECT_NE(hooked().cuMemsetD32Async(memory, 0, ~std::size_t{0} / 2, stream), CUDA_SUCCESS);
  EXPECT_NE(hooked().cuMemsetD8Async(memory, 0, std::size_t{1} << 40, stream), CUDA_SUCCESS);
  EXPECT_EQ(client_.get().figures().bytes, before);
  EXPECT_CUDA(hooked().cuMemsetD8Async(memory, 0, 4096, stream));
  EXPECT_CUDA(hooked().cuStreamSynchronize(stream));
  EXPECT_EQ(client_.get().figures().bytes, before + 4096);
  EXPECT_CUDA(hooked().cuMemFree(memory));
}

// Another process may wait for the event as soon as a record of it has returned.
TEST_F(Semantics, EventsSharedWhileSchedulingIsOffAreNeverQueued) {
  scheduling().set_policy(Schedule::Off);
  const HookedStream stream;
  CUevent event = nullptr;
  CUipcEventHandle handle{};
  ASSERT_CUDA(hooked().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
  ASSERT_CUDA(hooked().cuIpcGetEventHandle(&handle, event));
  scheduling().set_policy(Schedule::Fifo);
  ASSERT_CUDA(hooked().cuEventRecord(event, stream));
  EXPECT_EQ(scheduled_.scheduler().context_of(event), nullptr);
  EXPECT_CUDA(hooked().cuStreamSynchronize(stream));
  EXPECT_CUDA(hooked().cuEventDestroy(event));
}

// For the thread sanitizer: everything at once.
TEST_F(Semantics, ThirtyTwoClientsAtOnce) {
  constexpr int clients = 32;
  const std::uint64_t rounds = scaled(60);
  std::atomic<int> failures{0};
  scheduling().set_policy(Schedule::Fair);
  std::vector<std::thread> threads;
  for (int i = 0; i < clients; ++i) {
    threads.emplace_back([&, i] {
      const auto check = [&](CUresult answer) { failures += answer != CUDA_SUCCESS; };
      context_.make_current();
      const GivenClient mine{"one of many", i % 3, 1 + i % 4};
      mine.bind();
      CUstream stream = nullptr;
      CUdeviceptr memory = 0;
      CUevent event = nullptr;
      check(hooked().cuStreamCreate(&stream, i % 2 == 0 ? CU_STREAM_NON_BLOCKING : 0));
      check(hooked().cuMemAllocAsync(&memory, 1024, stream));
      check(hooked().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
      check(hooked().cuMemsetD32Async(memory, 0, 1, stream));
      for (std::uint64_t n = 0; n < rounds; ++n) {
        check(launch_hooked(kernels_.add_one, stream, std::uint64_t{memory}, 1u));
        check(hooked().cuEventRecord(event, stream));
        if (n % 16 == 0) check(hooked().cuEventSynchronize(event));
      }
      std::uint32_t found = 0;
      check(hooked().cuMemcpyDtoHAsync(&found, memory, 4, stream));
      check(hooked().cuMemFreeAsync(memory, stream));
      check(hooked().cuStreamSynchronize(stream));
      failures += found != rounds;
      check(hooked().cuEventDestroy(event));
      check(hooked().cuStreamDestroy(stream));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
}

}  // namespace
}  // namespace cuvmm::test
