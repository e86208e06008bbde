// SPDX-License-Identifier: Apache-2.0
// Programs of several clients over the simulated driver, through the doors.
#pragma once

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "hook/door_of.hpp"
#include "support/kernels.hpp"
#include "support/scale.hpp"

namespace cuvmm::test {

// The driver as a program under cuvmm sees it.
const Driver& hooked();

inline Scheduling& scheduling() {
  hooked();
  return Engine::get()->scheduling();
}

// The primary context, current on this thread.
class GivenContext {
 public:
  GivenContext() {
    GIVEN(hooked().cuInit(0));
    GIVEN(hooked().cuDevicePrimaryCtxRetain(&context_, 0));
    make_current();
  }
  ~GivenContext() {
    EXPECT_CUDA(hooked().cuCtxSynchronize_v2000());
    EXPECT_CUDA(hooked().cuDevicePrimaryCtxRelease(0));
  }
  GivenContext(const GivenContext&) = delete;
  GivenContext& operator=(const GivenContext&) = delete;
  void make_current() const { GIVEN(hooked().cuCtxSetCurrent(context_)); }
  CUcontext get() const { return context_; }

 private:
  CUcontext context_ = nullptr;
};

// A context of its own that an error can end, current on this thread.
struct DoomedContext {
  explicit DoomedContext(unsigned stream_flags) {
    CUmodule module = nullptr;
    GIVEN(hooked().cuCtxCreate_v3020(&context, 0, 0));
    GIVEN(hooked().cuModuleLoadData(&module, kernels_ptx()));
    GIVEN(hooked().cuModuleGetFunction(&fill, module, "fill"));
    GIVEN(hooked().cuStreamCreate(&stream, stream_flags));
    GIVEN(hooked().cuEventCreate(&event, CU_EVENT_DEFAULT));
  }

  CUcontext context = nullptr;
  CUfunction fill = nullptr;
  CUstream stream = nullptr;
  CUevent event = nullptr;
};

// Enables scheduling with this policy until the end of the scope.
class Scheduled {
 public:
  explicit Scheduled(Schedule policy = Schedule::Fifo) { scheduling().set_policy(policy); }
  ~Scheduled() { scheduling().set_policy(Schedule::Off); }
  Scheduled(const Scheduled&) = delete;
  Scheduled& operator=(const Scheduled&) = delete;

  Scheduler& scheduler() const { return scheduling().parts()->scheduler; }
};

// A client of the running scheduler, to which threads can be bound.
class GivenClient {
 public:
  explicit GivenClient(const char* name, int priority = 0, int weight = 1)
      : client_(scheduler().create_client(name, priority, weight)) {}
  ~GivenClient() {
    if (scheduler().client_of_this_thread() == &client_) scheduler().bind_this_thread(nullptr);
    scheduler().end_client(client_);
  }
  GivenClient(const GivenClient&) = delete;
  GivenClient& operator=(const GivenClient&) = delete;
  void bind() const { scheduler().bind_this_thread(&client_); }
  Client& get() const { return client_; }

 private:
  static Scheduler& scheduler() { return scheduling().parts()->scheduler; }
  Client& client_;
};

// A stream created and destroyed through the doors.
class HookedStream {
 public:
  explicit HookedStream(unsigned flags = CU_STREAM_NON_BLOCKING) {
    GIVEN(hooked().cuStreamCreate(&stream_, flags));
  }
  ~HookedStream() { EXPECT_CUDA(hooked().cuStreamDestroy(stream_)); }
  HookedStream(const HookedStream&) = delete;
  HookedStream& operator=(const HookedStream&) = delete;
  CUstream get() const { return stream_; }
  operator CUstream() const { return stream_; }

 private:
  CUstream stream_ = nullptr;
};

template <class... Parameters>
CUresult launch_hooked(CUfunction function, CUstream stream, Parameters... parameters) {
  void* pointers[] = {&parameters..., nullptr};
  return hooked().cuLaunchKernel(function, 4, 1, 1, 128, 1, 1, 0, stream, pointers, nullptr);
}

// Ends the process with one line if a test has not finished in time, instead of hanging.
class Deadline {
 public:
  explicit Deadline(int seconds = 240) {
    const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    thread_ = std::thread{[this, seconds, name] {
      for (int i = 0; i < seconds * 100 && !over_; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds{10});
      }
      if (over_) return;
      std::fprintf(stderr, "%s has not ended after %d s\n", name.c_str(), seconds);
      ::_exit(1);
    }};
  }
  ~Deadline() {
    over_ = true;
    thread_.join();
  }
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

 private:
  std::atomic<bool> over_{false};
  std::thread thread_;
};

}  // namespace cuvmm::test
