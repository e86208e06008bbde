// SPDX-License-Identifier: Apache-2.0
#include "schedule/random_program.hpp"

namespace cuvmm::test {
namespace {

constexpr unsigned shape_words = 32;

}  // namespace

// Three non-blocking streams, two blocking ones, the legacy stream, and this thread's own.
void RandomProgram::begin() {
  const Driver& driver = hooked();
  GIVEN(driver.cuMemAlloc(&memory_, buffers * sizeof(Words)));
  GIVEN(driver.cuMemAlloc(&values_, 4));
  GIVEN(driver.cuMemsetD32(memory_, 0, buffers * words));
  GIVEN(driver.cuMemsetD32(values_, 0, 1));
  GIVEN(driver.cuCtxSynchronize_v2000());
  for (std::size_t i = 0; i < legacy; ++i) {
    const bool blocking = waits_for_legacy(i);
    GIVEN(
        driver.cuStreamCreate(&handles_[i], blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
  }
  handles_[legacy] = nullptr;
  handles_[per_thread] = CU_STREAM_PER_THREAD;
  for (CUevent& event : events_) GIVEN(driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
}

RandomProgram::~RandomProgram() {
  const Driver& driver = hooked();
  for (std::size_t i = 0; i < legacy; ++i) EXPECT_CUDA(driver.cuStreamDestroy(handles_[i]));
  for (CUevent event : events_) EXPECT_CUDA(driver.cuEventDestroy(event));
  EXPECT_CUDA(driver.cuMemFree(memory_));
  EXPECT_CUDA(driver.cuMemFree(values_));
}

int RandomProgram::step(std::size_t stream) {
  Clock& clock = clocks_[stream];
  if (stream == legacy) {
    for (std::size_t i = 0; i < streams; ++i) {
      if (waits_for_legacy(i)) join(clock, clocks_[i]);
    }
  } else if (waits_for_legacy(stream)) {
    join(clock, clocks_[legacy]);
  }
  return ++clock[stream];
}

// Orders the buffer's next use, on that stream, after its last. If nothing orders it yet, an event
// does; another record may reuse that event long before the wait is issued.
void RandomProgram::order(std::size_t stream, std::size_t buffer) {
  const Use last = last_use_[buffer];
  const auto is_ordered = [&] { return clocks_[stream][last.stream] >= last.step; };
  if (last.stream != stream && !is_ordered()) {
    CUevent event = events_[chance(events)];
    step(last.stream);
    EXPECT_CUDA(hooked().cuEventRecord(event, handle(last.stream)));
    const Clock recorded = clocks_[last.stream];
    as_[chance(clients)]->bind();
    step(stream);
    EXPECT_CUDA(hooked().cuStreamWaitEvent(handle(stream), event, 0));
    join(clocks_[stream], recorded);
  }
  const int now = step(stream);
  last_use_[buffer] = {stream, now};
}

void RandomProgram::host_waited_for(const Clock& clock) {
  for (Clock& one : clocks_) join(one, clock);
}

void RandomProgram::step_of_kernel(std::size_t stream) {
  const std::size_t buffer = chance(buffers);
  order(stream, buffer);
  if (chance(2) == 0) {
    const auto value = static_cast<std::uint32_t>(random_());
    EXPECT_CUDA(launch_hooked(kernels_.fill, handle(stream), std::uint64_t{address(buffer)}, value,
                              std::uint32_t{shape_words}));
    expected_[buffer].fill(value);
  } else {
    EXPECT_CUDA(launch_hooked(kernels_.add_one, handle(stream), std::uint64_t{address(buffer)},
                              std::uint32_t{shape_words}));
    for (std::uint32_t& word : expected_[buffer]) ++word;
  }
}

void RandomProgram::step_of_copy(std::size_t stream) {
  const std::size_t from = chance(buffers);
  const std::size_t to = (from + 1 + chance(buffers - 1)) % buffers;
  order(stream, from);
  order(stream, to);
  const bool by_kernel = chance(2) == 0;
  EXPECT_CUDA(
      by_kernel
          ? launch_hooked(kernels_.copy_words, handle(stream), std::uint64_t{address(to)},
                          std::uint64_t{address(from)}, std::uint32_t{shape_words})
          : hooked().cuMemcpyDtoDAsync(address(to), address(from), sizeof(Words), handle(stream)));
  expected_[to] = expected_[from];
}

// From memory that is reused as soon as the call has returned.
void RandomProgram::step_from_host(std::size_t stream) {
  const std::size_t buffer = chance(buffers);
  order(stream, buffer);
  Words given;
  for (std::uint32_t& word : given) word = static_cast<std::uint32_t>(random_());
  expected_[buffer] = given;
  EXPECT_CUDA(
      hooked().cuMemcpyHtoDAsync(address(buffer), given.data(), sizeof given, handle(stream)));
  given.fill(0xDEADDEAD);
}

void RandomProgram::step_of_temporary(std::size_t stream) {
  const std::size_t from = chance(buffers);
  const std::size_t to = (from + 1) % buffers;
  order(stream, from);
  order(stream, to);
  CUdeviceptr between = 0;
  ASSERT_CUDA(hooked().cuMemAllocAsync(&between, sizeof(Words), handle(stream)));
  EXPECT_CUDA(hooked().cuMemcpyDtoDAsync(between, address(from), sizeof(Words), handle(stream)));
  EXPECT_CUDA(hooked().cuMemsetD32Async(address(from), 7, words, handle(stream)));
  EXPECT_CUDA(hooked().cuMemcpyDtoDAsync(address(to), between, sizeof(Words), handle(stream)));
  EXPECT_CUDA(hooked().cuMemFreeAsync(between, handle(stream)));
  expected_[to] = expected_[from];
  expected_[from].fill(7);
}

// A value in memory orders two streams.
void RandomProgram::step_of_value(std::size_t stream) {
  const std::size_t other = chance(legacy);
  if (other == stream) return;
  ++last_value_;
  step(other);
  EXPECT_CUDA(hooked().cuStreamWriteValue32(handle(other), values_, last_value_, 0));
  const Clock written = clocks_[other];
  as_[chance(clients)]->bind();
  step(stream);
  EXPECT_CUDA(
      hooked().cuStreamWaitValue32(handle(stream), values_, last_value_, CU_STREAM_WAIT_VALUE_GEQ));
  join(clocks_[stream], written);
  // The next write must come after this wait.
  EXPECT_CUDA(hooked().cuStreamSynchronize(handle(stream)));
  host_waited_for(clocks_[stream]);
}

void RandomProgram::step_of_host_function(std::size_t stream) {
  step(stream);
  ++calls_expected_;
  EXPECT_CUDA(hooked().cuLaunchHostFunc(
      handle(stream), [](void* called) { ++*static_cast<std::atomic<int>*>(called); }, &called_));
}

void RandomProgram::step_of_waiting(std::size_t stream) {
  switch (chance(4)) {
    case 0: {
      EXPECT_CUDA(hooked().cuStreamSynchronize(handle(stream)));
      Clock waited = clocks_[stream];
      if (stream == legacy) {
        for (std::size_t i = 0; i < streams; ++i) {
          if (waits_for_legacy(i)) join(waited, clocks_[i]);
        }
      }
      host_waited_for(waited);
      if (stream != legacy) {
        EXPECT_CUDA(hooked().cuStreamQuery(handle(stream)));
      }
      break;
    }
    case 1: {
      CUevent event = events_[chance(events)];
      step(stream);
      EXPECT_CUDA(hooked().cuEventRecord(event, handle(stream)));
      EXPECT_CUDA(hooked().cuEventSynchronize(event));
      EXPECT_CUDA(hooked().cuEventQuery(event));
      host_waited_for(clocks_[stream]);
      break;
    }
    case 2: {
      CUresult answer = CUDA_ERROR_NOT_READY;
      while (answer == CUDA_ERROR_NOT_READY) answer = hooked().cuStreamQuery(handle(stream));
      EXPECT_CUDA(answer);
      if (stream != legacy) host_waited_for(clocks_[stream]);
      break;
    }
    default:
      EXPECT_CUDA(hooked().cuCtxSynchronize_v2000());
      for (const Clock clock : clocks_) host_waited_for(clock);
      break;
  }
}

void RandomProgram::step_to_host() {
  const std::size_t buffer = chance(buffers);
  order(legacy, buffer);
  Words read{};
  EXPECT_CUDA(hooked().cuMemcpyDtoH(read.data(), address(buffer), sizeof read));
  EXPECT_EQ(read, expected_[buffer]);
  host_waited_for(clocks_[legacy]);
}

void RandomProgram::step_of_legacy() {
  const std::size_t from = chance(buffers);
  const std::size_t to = (from + 1) % buffers;
  order(legacy, from);
  order(legacy, to);
  EXPECT_CUDA(hooked().cuMemcpyDtoD(address(to), address(from), sizeof(Words)));
  EXPECT_CUDA(hooked().cuMemsetD32(address(from), 5, words));
  expected_[to] = expected_[from];
  expected_[from].fill(5);
}

void RandomProgram::run(int steps) {
  for (int i = 0; i < steps; ++i) {
    as_[chance(clients)]->bind();
    const std::size_t stream = chance(streams);
    switch (chance(16)) {
      case 0:
      case 1:
        step_of_waiting(stream);
        break;
      case 2:
        step_to_host();
        break;
      case 3:
        step_of_legacy();
        break;
      case 4:
        step_of_value(stream);
        break;
      case 5:
        step_of_host_function(stream);
        break;
      case 6:
        step_of_temporary(stream);
        break;
      case 7:
      case 8:
        step_from_host(stream);
        break;
      case 9:
      case 10:
      case 11:
        step_of_copy(stream);
        break;
      default:
        step_of_kernel(stream);
        break;
    }
  }
}

void RandomProgram::check() {
  EXPECT_CUDA(hooked().cuCtxSynchronize_v2000());
  EXPECT_EQ(called_, calls_expected_);
  std::array<Words, buffers> found;
  EXPECT_CUDA(hooked().cuMemcpyDtoH(found.data(), memory_, sizeof found));
  for (std::size_t i = 0; i < buffers; ++i) EXPECT_EQ(found[i], expected_[i]) << "buffer " << i;
}

}  // namespace cuvmm::test
