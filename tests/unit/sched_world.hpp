// SPDX-License-Identifier: Apache-2.0
// A scheduler without a driver: operations note that they were issued, and the device runs them one
// after the other, each for as long as its kind says.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "sched/scheduler.hpp"

namespace cuvmm::test {

// One device that does one thing at a time.
class SerialDevice final : public DriverSide {
 public:
  void thread_begins() override {}
  void make_current(CUcontext context) override { current_ = context; }
  CUcontext current() const { return current_; }

  bool mark_begin(Batch&) override {
    ++begins;
    return true;
  }
  bool mark_end(Batch& batch) override {
    std::this_thread::sleep_for(std::chrono::milliseconds{mark_takes_ms});
    ++marks;
    const std::lock_guard holding{lock_};
    const std::uint64_t length = batch.operations * batch.kind;
    busy_until_ = std::max(busy_until_, now_ns()) + length;
    batch.end = reinterpret_cast<CUevent>(busy_until_);
    return true;
  }
  std::optional<std::uint64_t> device_time(Batch& batch) override {
    if (is_stuck || batch.stream == stuck_stream) return std::nullopt;
    if (now_ns() < reinterpret_cast<std::uint64_t>(batch.end)) return std::nullopt;
    completed += batch.operations;
    return batch.operations * batch.kind;
  }

  void drop(Batch&) override { ++drops; }

  std::atomic<int> mark_takes_ms{0};
  std::atomic<int> begins{0};
  std::atomic<int> marks{0};  // of ends
  std::atomic<int> drops{0};
  std::atomic<std::size_t> completed{0};  // operations

  // Nothing completes any more, as if kernels were waiting for something.
  std::atomic<bool> is_stuck{false};
  // Nothing on this stream does.
  std::atomic<StreamId> stuck_stream{no_stream};

 private:
  std::atomic<CUcontext> current_{nullptr};
  std::mutex lock_;
  std::uint64_t busy_until_ = 0;
};

inline CUcontext context_number(std::uintptr_t number) {
  return reinterpret_cast<CUcontext>(number << 20);
}
inline CUevent event_number(std::uintptr_t number) {
  return reinterpret_cast<CUevent>(number << 12);
}

// Streams as the table of streams knows them.
class Streams {
 public:
  StreamState& add(StreamKind kind = StreamKind::NonBlocking, std::uintptr_t context = 1,
                   int device = 0) {
    auto& state = all_.emplace_back(std::make_unique<StreamState>());
    state->id = static_cast<StreamId>(all_.size());
    state->context = context_number(context);
    state->handle = reinterpret_cast<CUstream>(all_.size() << 8);
    state->kind = kind;
    state->device = device;
    return *state;
  }

 private:
  std::vector<std::unique_ptr<StreamState>> all_;
};

inline Request on(const StreamState& stream, std::uint64_t kind = 0) {
  return {.call = Call::cuLaunchKernel, .context = stream.context, .stream = &stream, .kind = kind};
}
inline Request records(CUevent event, const StreamState& stream) {
  Request request = on(stream);
  request.call = Call::cuEventRecord;
  request.event = event;
  request.event_use = EventUse::Records;
  return request;
}
inline Request waits_for(CUevent event, const StreamState& stream) {
  Request request = on(stream);
  request.call = Call::cuStreamWaitEvent;
  request.event = event;
  request.event_use = EventUse::WaitsFor;
  return request;
}

// Records the order in which operations were issued.
class Issued {
 public:
  void note(int what) {
    const std::lock_guard holding{lock_};
    all_.push_back(what);
  }
  std::vector<int> all() const {
    const std::lock_guard holding{lock_};
    return all_;
  }
  std::size_t count() const { return all().size(); }
  // The position of the operation; the total count if it was not issued.
  std::size_t place_of(int what) const {
    const auto everything = all();
    return static_cast<std::size_t>(std::find(everything.begin(), everything.end(), what) -
                                    everything.begin());
  }

 private:
  mutable std::mutex lock_;
  std::vector<int> all_;
};

// Blocks an issuing thread inside an operation until it is opened.
class Door {
 public:
  CUresult pass() {
    reached_ = true;
    while (!open_) std::this_thread::sleep_for(std::chrono::microseconds{50});
    return CUDA_SUCCESS;
  }
  void open() { open_ = true; }
  void wait_until_reached() const {
    while (!reached_) std::this_thread::sleep_for(std::chrono::microseconds{50});
  }
  ~Door() { open(); }

 private:
  std::atomic<bool> reached_{false};
  std::atomic<bool> open_{false};
};

// Clients, lanes and the issuing thread, over a SerialDevice.
class SchedulerTest : public testing::Test {
 protected:
  Scheduler& start(ScheduleSettings settings = {}) {
    scheduler_ = std::make_unique<Scheduler>(device_, settings);
    return *scheduler_;
  }
  Taken submit(Client& client, const Request& request, int what) {
    return scheduler_->submit(client, request, [this, what] {
      issued_.note(what);
      return CUDA_SUCCESS;
    });
  }
  Taken submit(Client& client, const Request& request, Door& door) {
    return scheduler_->submit(client, request, [&door] { return door.pass(); });
  }

  SerialDevice device_;
  Streams streams_;
  Issued issued_;
  std::unique_ptr<Scheduler> scheduler_;
};

inline bool soon(const std::function<bool()>& holds) {
  const std::uint64_t until = now_ns() + 20'000'000'000;
  while (!holds()) {
    if (now_ns() > until) return false;
    std::this_thread::sleep_for(std::chrono::microseconds{100});
  }
  return true;
}

}  // namespace cuvmm::test
