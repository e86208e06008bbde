// SPDX-License-Identifier: Apache-2.0
// Programs that would hang if the scheduler ever waited for something that only they can do. Each
// finishes within its own time limit, or the process is ended.
#include <sys/wait.h>

#include <functional>

#include "schedule/schedule_world.hpp"

namespace cuvmm::test {
namespace {

class Deadlock : public testing::TestWithParam<Schedule> {
 protected:
  const Deadline deadline_;
  const GivenContext context_;
  const Kernels kernels_;
  const Scheduled scheduled_{GetParam()};
};

struct Flag {
  std::atomic<bool> is_set{false};
  std::atomic<bool> was_seen{false};

  static void set(void* flag) { static_cast<Flag*>(flag)->is_set = true; }
  static void wait(void* data) {
    auto* flag = static_cast<Flag*>(data);
    flag->was_seen = true;
    while (!flag->is_set) std::this_thread::sleep_for(std::chrono::microseconds{100});
  }
};

TEST_P(Deadlock, NoneByAHostFunctionThatWaitsForAnotherClient) {
  const GivenClient low{"low", -5};
  const GivenClient high{"high", 5};
  const HookedStream one;
  const HookedStream two;
  Flag flag;
  for (const auto& [waiter, setter] : {std::pair{&low, &high}, std::pair{&high, &low}}) {
    flag.is_set = false;
    waiter->bind();
    ASSERT_CUDA(hooked().cuLaunchHostFunc(one, &Flag::wait, &flag));
    setter->bind();
    ASSERT_CUDA(hooked().cuLaunchHostFunc(two, &Flag::set, &flag));
    ASSERT_CUDA(hooked().cuStreamSynchronize(one));
  }
}

TEST_P(Deadlock, NoneByAValueThatALaterCallOfTheSameClientWrites) {
  const GivenClient other{"other", 5};
  const GivenClient client{"client"};
  const HookedStream one;
  const HookedStream two;
  const HostFlag value;
  client.bind();
  ASSERT_CUDA(hooked().cuStreamWaitValue32(one, value.address(), 1, CU_STREAM_WAIT_VALUE_GEQ));
  for (int i = 0; i < 300; ++i) {
    ASSERT_CUDA(launch_hooked(kernels_.fill, one, std::uint64_t{value.address()}, 2u, 1u));
  }
  ASSERT_CUDA(hooked().cuStreamWriteValue32(two, value.address(), 1, 0));
  ASSERT_CUDA(hooked().cuStreamSynchronize(one));
  EXPECT_EQ(value.get(), 2U);
}

// The copy copies nothing, so it is no barrier; nor may a mark of the scheduler's behind it be one.
TEST_P(Deadlock, NoneByAnEmptyCopyOnTheLegacyStream) {
  const GivenClient client{"client"};
  const HookedStream waits{CU_STREAM_DEFAULT};
  const HookedStream writes{CU_STREAM_DEFAULT};
  HostFlag value;
  CUdeviceptr memory = 0;
  GIVEN(hooked().cuMemAlloc(&memory, 4));
  std::uint32_t word = 0;
  client.bind();
  for (const auto& copy :
       {std::function{
            [&] { return hooked().cuMemcpyHtoDAsync(memory, &word, 0, nullptr); }},  // queued
        std::function{[&] { return hooked().cuMemcpyHtoD(memory, &word, 0); }}}) {   // in turn
    value.set(0);
    ASSERT_CUDA(hooked().cuStreamWaitValue32(waits, value.address(), 1, CU_STREAM_WAIT_VALUE_GEQ));
    ASSERT_CUDA(copy());
    ASSERT_CUDA(hooked().cuStreamWriteValue32(writes, value.address(), 1, 0));
    ASSERT_CUDA(hooked().cuStreamSynchronize(waits));
  }
  EXPECT_CUDA(hooked().cuMemFree(memory));
}

// By the legacy rule the allocation waits for the gate, and later work of blocking streams for the
// allocation; but not work that the program submitted before it.
TEST_P(Deadlock, NoneByAnAllocationOnTheLegacyStreamBehindQueuedWork) {
  const GivenClient client{"client"};
  HostFlag gate;
  const HookedStream gated{CU_STREAM_DEFAULT};
  const HookedStream free_to_run{CU_STREAM_DEFAULT};
  CUdeviceptr words = 0;
  GIVEN(hooked().cuMemAlloc(&words, 4));
  constexpr std::size_t size = 2 << 20;  // a whole granule, so that it is reused
  CUdeviceptr reused = 0;
  GIVEN(hooked().cuMemAllocAsync(&reused, size, gated));
  client.bind();
  ASSERT_CUDA(hooked().cuStreamWaitValue32(gated, gate.address(), 1, CU_STREAM_WAIT_VALUE_GEQ));
  ASSERT_CUDA(hooked().cuMemFreeAsync(reused, gated));
  while (client.get().figures().operations < 2) ::usleep(100);  // until both are issued
  for (int i = 0; i < 300; ++i) {  // more than may be in flight: the lane holds what follows
    ASSERT_CUDA(launch_hooked(kernels_.fill, gated, std::uint64_t{words}, 2u, 1u));
  }
  ASSERT_CUDA(launch_hooked(kernels_.fill, free_to_run, std::uint64_t{words}, 2u, 1u));
  CUdeviceptr memory = 0;
  ASSERT_CUDA(hooked().cuMemAllocAsync(&memory, size, nullptr));
  EXPECT_EQ(memory, reused);

  EXPECT_CUDA(hooked().cuStreamSynchronize(free_to_run));

  gate.set(1);
  EXPECT_CUDA(hooked().cuMemFreeAsync(memory, nullptr));
  EXPECT_CUDA(hooked().cuMemFree(words));
}

TEST_P(Deadlock, NoneByClientsThatWaitForEachOthersEvents) {
  const GivenClient ann{"ann", -5};
  const GivenClient ben{"ben", 5};
  std::atomic<int> failures{0};
  const HookedStream of_ann;
  const HookedStream of_ben;
  CUevent events[2] = {};
  for (CUevent& event : events) GIVEN(hooked().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  const auto work = [&](const GivenClient& client, CUstream stream, CUevent mine, CUevent others) {
    context_.make_current();
    client.bind();
    for (int i = 0; i < 500; ++i) {
      failures += hooked().cuEventRecord(mine, stream) != CUDA_SUCCESS;
      failures += hooked().cuStreamWaitEvent(stream, others, 0) != CUDA_SUCCESS;
      if (i % 50 == 0) failures += hooked().cuStreamSynchronize(stream) != CUDA_SUCCESS;
    }
  };
  std::thread first{[&] { work(ann, of_ann, events[0], events[1]); }};
  std::thread second{[&] { work(ben, of_ben, events[1], events[0]); }};
  first.join();
  second.join();
  EXPECT_CUDA(hooked().cuCtxSynchronize_v2000());
  EXPECT_EQ(failures, 0);
  for (CUevent event : events) EXPECT_CUDA(hooked().cuEventDestroy(event));
}

TEST_P(Deadlock, NoneByStreamsThatEndWithWorkQueued) {
  const GivenClient client{"client"};
  client.bind();
  CUdeviceptr memory = 0;
  GIVEN(hooked().cuMemAlloc(&memory, 4096));
  for (int i = 0; i < 50; ++i) {
    CUstream stream = nullptr;
    ASSERT_CUDA(hooked().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    const std::uint64_t own_words = memory + static_cast<std::uint64_t>(i) * 16;
    for (int n = 0; n < 10; ++n) {
      ASSERT_CUDA(launch_hooked(kernels_.add_one, stream, own_words, 4u));
    }
    ASSERT_CUDA(hooked().cuStreamDestroy(stream));
  }
  ASSERT_CUDA(hooked().cuCtxSynchronize_v2000());
  EXPECT_CUDA(hooked().cuMemFree(memory));
}

TEST_P(Deadlock, NoneByThreadsThatDieWithWorkQueued) {
  CUdeviceptr memory = 0;
  GIVEN(hooked().cuMemAlloc(&memory, 4));
  GIVEN(hooked().cuMemsetD32(memory, 0, 1));
  GIVEN(hooked().cuCtxSynchronize_v2000());
  const HookedStream stream;
  {
    const GivenClient client{"client"};
    std::thread{[&] {
      context_.make_current();
      client.bind();
      for (int n = 0; n < 100; ++n) {
        EXPECT_CUDA(launch_hooked(kernels_.add_one, stream.get(), std::uint64_t{memory}, 1u));
      }
    }}.join();
  }
  ASSERT_CUDA(hooked().cuStreamSynchronize(stream));
  std::uint32_t found = 0;
  EXPECT_CUDA(hooked().cuMemcpyDtoH(&found, memory, 4));
  EXPECT_EQ(found, 100U);
  EXPECT_CUDA(hooked().cuMemFree(memory));
}

TEST_P(Deadlock, NoneByAForkWhileWorkIsQueued) {
  const GivenClient client{"client"};
  client.bind();
  const HookedStream stream;
  Flag flag;
  ASSERT_CUDA(hooked().cuLaunchHostFunc(stream, &Flag::wait, &flag));
  for (int n = 0; n < 10; ++n) ASSERT_CUDA(hooked().cuLaunchHostFunc(stream, &Flag::set, &flag));
  const pid_t child = ::fork();
  if (child == 0) ::_exit(Engine::running() == nullptr ? 0 : 1);
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  flag.is_set = true;
  EXPECT_CUDA(hooked().cuStreamSynchronize(stream));
}

TEST_P(Deadlock, NoneByABlockingCallBesideAnotherThreadOfTheSameClient) {
  const GivenClient client{"client"};
  const HookedStream blocking{CU_STREAM_DEFAULT};
  const HookedStream other;
  const HostFlag value;
  client.bind();
  ASSERT_CUDA(hooked().cuStreamWaitValue32(blocking, value.address(), 1, CU_STREAM_WAIT_VALUE_GEQ));
  std::thread helps{[&] {
    context_.make_current();
    client.bind();
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
    EXPECT_CUDA(hooked().cuStreamWriteValue32(other, value.address(), 1, 0));
  }};
  CUdeviceptr memory = 0;
  EXPECT_CUDA(hooked().cuMemAlloc(&memory, 4));
  std::uint32_t word = 3;
  EXPECT_CUDA(hooked().cuMemcpyHtoD(memory, &word, 4));  // waits for the blocking stream
  helps.join();
  EXPECT_CUDA(hooked().cuMemFree(memory));
}

// A thread whose next step is what its work in flight waits for. As without cuvmm, the calls before
// that step must return.
class DeadlockOfOneThread : public Deadlock {
 protected:
  DeadlockOfOneThread() {
    client_.bind();
    GIVEN(hooked().cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING));
    GIVEN(hooked().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    GIVEN(hooked().cuStreamWaitValue32(stream_, value_.address(), 1, CU_STREAM_WAIT_VALUE_GEQ));
  }
  ~DeadlockOfOneThread() override {
    value_.set();
    if (stream_ != nullptr) {
      EXPECT_CUDA(hooked().cuStreamSynchronize(stream_));
      EXPECT_CUDA(hooked().cuStreamDestroy(stream_));
    }
    if (event_ != nullptr) {
      EXPECT_CUDA(hooked().cuEventDestroy(event_));
    }
  }
  void queue(int launches) const {
    for (int i = 0; i < launches; ++i) {
      ASSERT_CUDA(launch_hooked(kernels_.fill, stream_, std::uint64_t{value_.address()}, 2u, 1u));
    }
  }

  const GivenClient idle_{"idle", 10};
  const GivenClient client_{"client"};
  HostFlag value_;
  CUevent event_ = nullptr;
  CUstream stream_ = nullptr;
};

TEST_P(DeadlockOfOneThread, EndsAnEventFirst) {
  queue(300);
  ASSERT_CUDA(hooked().cuEventRecord(event_, stream_));
  ASSERT_CUDA(hooked().cuEventDestroy(std::exchange(event_, nullptr)));
}

TEST_P(DeadlockOfOneThread, EndsTheStreamFirst) {
  queue(300);
  ASSERT_CUDA(hooked().cuStreamDestroy(std::exchange(stream_, nullptr)));
  value_.set();
  ASSERT_CUDA(hooked().cuCtxSynchronize_v2000());
  EXPECT_EQ(value_.get(), 2U);
}

TEST_P(DeadlockOfOneThread, AllocatesWhereItFreedFirst) {
  CUdeviceptr memory = 0;
  ASSERT_CUDA(hooked().cuMemAllocAsync(&memory, 4096, stream_));
  queue(300);
  ASSERT_CUDA(hooked().cuMemFreeAsync(memory, stream_));
  ASSERT_CUDA(hooked().cuMemAllocAsync(&memory, 4096, stream_));
  ASSERT_CUDA(hooked().cuMemFreeAsync(memory, stream_));
}

TEST_P(DeadlockOfOneThread, FillsItsLaneFirst) {
  queue(900);
}

TEST_P(DeadlockOfOneThread, HasItsTurnFirst) {
  queue(300);
  CUstreamBatchMemOpParams write{};
  write.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  write.writeValue.address = value_.address();
  write.writeValue.value = 3;
  ASSERT_CUDA(hooked().cuStreamBatchMemOp(stream_, 1, &write, 0));
}

// The owner of the event is unknown, so the wait is not queued. A mark placed in the blocking
// stream after it would wait for it too.
TEST_P(DeadlockOfOneThread, SynchronizesABlockingStreamBesideAWaitOfTheLegacyStream) {
  const HookedStream blocking{CU_STREAM_DEFAULT};
  queue(1);
  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, hooked().cuStreamQuery(stream_));
  CUevent foreign = nullptr;
  GIVEN(driver().cuEventCreate(&foreign, CU_EVENT_DISABLE_TIMING));
  GIVEN(driver().cuEventRecord(foreign, stream_));
  for (int i = 0; i < 20; ++i) {
    ASSERT_CUDA(launch_hooked(kernels_.spin, blocking.get(), std::uint64_t{100}));
  }
  ASSERT_CUDA(hooked().cuStreamWaitEvent(CU_STREAM_LEGACY, foreign, 0));
  ASSERT_CUDA(hooked().cuStreamSynchronize(blocking));
  value_.set();
  EXPECT_CUDA(hooked().cuCtxSynchronize_v2000());
  EXPECT_CUDA(driver().cuEventDestroy(foreign));
}

// As above, with a call that is not scheduled at all.
TEST_P(DeadlockOfOneThread, SynchronizesABlockingStreamBesideAnUnscheduledCallOnTheLegacyStream) {
  const HookedStream held{CU_STREAM_DEFAULT};
  const HookedStream blocking{CU_STREAM_DEFAULT};
  CUdeviceptr managed = 0;
  ASSERT_CUDA(hooked().cuMemAllocManaged(&managed, 64 * KiB, CU_MEM_ATTACH_GLOBAL));
  ASSERT_CUDA(hooked().cuStreamWaitValue32(held, value_.address(), 1, CU_STREAM_WAIT_VALUE_GEQ));
  std::this_thread::sleep_for(std::chrono::milliseconds{20});
  const auto wait = [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds{3}); };
  for (int i = 0; i < 5; ++i) {
    ASSERT_CUDA(launch_hooked(kernels_.spin, blocking.get(), std::uint64_t{100}));
  }
  ASSERT_CUDA(hooked().cuLaunchHostFunc(blocking, wait, nullptr));
  ASSERT_CUDA(hooked().cuStreamAttachMemAsync(CU_STREAM_LEGACY, managed, 0, CU_MEM_ATTACH_GLOBAL));
  ASSERT_CUDA(hooked().cuStreamSynchronize(blocking));
  value_.set();
  EXPECT_CUDA(hooked().cuCtxSynchronize_v2000());
  EXPECT_CUDA(hooked().cuMemFree(managed));
}

TEST_P(DeadlockOfOneThread, EndsAnEventFirstBesideABusyClient) {
  std::atomic<bool> over{false};
  std::thread busy{[&] {
    context_.make_current();
    idle_.bind();
    const HookedStream stream;
    while (!over) {
      EXPECT_CUDA(launch_hooked(kernels_.spin, stream.get(), std::uint64_t{100'000}));
      EXPECT_CUDA(hooked().cuStreamSynchronize(stream));
    }
  }};
  queue(300);
  EXPECT_CUDA(hooked().cuEventRecord(event_, stream_));
  EXPECT_CUDA(hooked().cuEventDestroy(std::exchange(event_, nullptr)));
  over = true;
  busy.join();
}

const auto all_policies =
    testing::Values(Schedule::Fifo, Schedule::RoundRobin, Schedule::Priority, Schedule::Fair);

std::string policy_of(const testing::TestParamInfo<Schedule>& given) {
  std::string name{choice_names<Schedule>[static_cast<std::size_t>(given.param)]};
  std::erase(name, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Under, Deadlock, all_policies, policy_of);
INSTANTIATE_TEST_SUITE_P(Under, DeadlockOfOneThread, all_policies, policy_of);

}  // namespace
}  // namespace cuvmm::test
