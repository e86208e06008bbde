// SPDX-License-Identifier: Apache-2.0
// A stream clock over the driver, and streams that a test can hold.
#pragma once

#include <optional>

#include "contract/streams_support.hpp"
#include "stream/stream_clock.hpp"

namespace cuvmm::test {

inline std::uint64_t in_ms(std::uint64_t ms) {
  return now_ns() + ms * 1'000'000;
}

// A stream that makes no progress until it is released.
class HeldStream {
 public:
  HeldStream(PinnedWords& words, Size index, unsigned flags) : words_(words), index_(index) {
    GIVEN(driver().cuStreamCreate(&stream_, flags));
  }
  ~HeldStream() {
    release();
    EXPECT_CUDA(driver().cuStreamDestroy(stream_));
  }
  HeldStream(const HeldStream&) = delete;
  HeldStream& operator=(const HeldStream&) = delete;

  void hold() {
    CUdeviceptr address = 0;
    GIVEN(driver().cuMemHostGetDevicePointer(&address, words_.data() + index_, 0));
    GIVEN(driver().cuStreamWaitValue32(stream_, address, 1, CU_STREAM_WAIT_VALUE_GEQ));
  }
  void release() { __atomic_store_n(words_.data() + index_, 1U, __ATOMIC_RELEASE); }
  operator CUstream() const { return stream_; }
  StreamName name() const { return {.handle = stream_}; }

 private:
  PinnedWords& words_;
  const Size index_;
  CUstream stream_ = nullptr;
};

class StreamClockTest : public DriverContract {
 protected:
  CUcontext context() {
    CUcontext current = nullptr;
    GIVEN(driver().cuCtxGetCurrent(&current));
    return current;
  }
  StreamState& state(const StreamName& name) { return *clock->table().find(name); }
  StreamId id(const StreamName& name) { return state(name).id; }
  void hold_legacy() {
    CUdeviceptr address = 0;
    GIVEN(driver().cuMemHostGetDevicePointer(&address, words->data() + next_word, 0));
    GIVEN(driver().cuStreamWaitValue32(nullptr, address, 1, CU_STREAM_WAIT_VALUE_GEQ));
    legacy.legacy_submitted();
  }
  void release_legacy() {
    __atomic_store_n(words->data() + next_word++, 1U, __ATOMIC_RELEASE);
    GIVEN(driver().cuStreamSynchronize(nullptr));
  }
  // Does what a stream-ordered free does.
  FreeTicket free_on(const StreamName& name, Size bytes = 0) {
    return free_on(*clock, name, bytes);
  }
  static FreeTicket free_on(StreamClock& of, const StreamName& name, Size bytes = 0) {
    StreamClock::Operation operation{of, *of.table().find(name), StreamClock::Operation::Kind::Free,
                                     bytes};
    EXPECT_CUDA(operation.answer());
    return operation.freed();
  }
  bool operations_are_done(const StreamName& name) {
    return StreamClock::PlacedOperations{*clock, name}.are_done();
  }
  // Does what a stream-ordered allocation does.
  void allocate_on(const StreamName& name) {
    const StreamClock::Operation operation{*clock, state(name),
                                           StreamClock::Operation::Kind::Allocation};
    EXPECT_CUDA(operation.answer());
  }
  void record(CUevent event, const StreamName& name) {
    EventPlaces::Recording recording{clock->events(), event};
    StreamClock::Place place = clock->place_on(name);
    GIVEN(driver().cuEventRecord(event, name.handle));
    clock->event_recorded(recording, name, std::move(place));
  }
  void wait(const StreamName& name, CUevent event) {
    const EventPlaces::Recorded recorded = clock->events().last_record(event);
    GIVEN(driver().cuStreamWaitEvent(name.handle, event, 0));
    clock->waited_for_by(name, event, recorded);
  }
  StreamClock::Program program() {
    return {captures, gate, legacy, [this] { return sees_everything; }};
  }

  HeldStream held(unsigned flags = CU_STREAM_NON_BLOCKING) { return {*words, next_word++, flags}; }

  void SetUp() override {
    DriverContract::SetUp();
    words.emplace(8);
    clock.emplace(driver(), program());
  }
  void TearDown() override {
    clock.reset();
    words.reset();
    DriverContract::TearDown();
  }

  // Freed last, since freeing it waits for every stream.
  std::optional<PinnedWords> words;
  Size next_word = 0;
  Captures captures;
  Gate gate;
  LegacyBarrier legacy;
  bool sees_everything = true;
  std::optional<StreamClock> clock;
};

}  // namespace cuvmm::test
