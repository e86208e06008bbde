// SPDX-License-Identifier: Apache-2.0
// A clock of streams over the driver, and streams that are held.
#pragma once

#include <optional>

#include "contract/streams_support.hpp"
#include "stream/stream_clock.hpp"

namespace cuvmm::test {

inline std::uint64_t in_ms(std::uint64_t ms) {
  return now_ns() + ms * 1'000'000;
}

// A stream that does nothing further until it is told to.
class HeldStream {
 public:
  HeldStream(PinnedWords& words, Size index, unsigned flags) : words_(words), index_(index) {
    GIVEN(driver().cuStreamCreate(&stream_, flags));
  }
  ~HeldStream() {
    let_go();
    EXPECT_CUDA(driver().cuStreamDestroy(stream_));
  }
  HeldStream(const HeldStream&) = delete;
  HeldStream& operator=(const HeldStream&) = delete;

  void hold() {
    CUdeviceptr address = 0;
    GIVEN(driver().cuMemHostGetDevicePointer(&address, words_.data() + index_, 0));
    GIVEN(driver().cuStreamWaitValue32(stream_, address, 1, CU_STREAM_WAIT_VALUE_GEQ));
  }
  void let_go() { __atomic_store_n(words_.data() + index_, 1U, __ATOMIC_RELEASE); }
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
  FreeTicket free_on(const StreamName& name) { return StreamClock::ticket(state(name)); }

  HeldStream held(unsigned flags = CU_STREAM_NON_BLOCKING) { return {*words, next_word++, flags}; }

  void SetUp() override {
    DriverContract::SetUp();
    words.emplace(8);
    clock.emplace(driver(), captures);
  }
  void TearDown() override {
    clock.reset();
    words.reset();
    DriverContract::TearDown();
  }

  // Freed at the very end, since that waits for every stream.
  std::optional<PinnedWords> words;
  Size next_word = 0;
  Captures captures;
  std::optional<StreamClock> clock;
};

}  // namespace cuvmm::test
