// SPDX-License-Identifier: Apache-2.0
// A program under cuvmm without the hooks: each call goes to the driver, and Memory and the clock
// are notified as by the hooks, in the same order.
//
// What it cannot see: memory handed on by anything but an event or a wait, such as the rule of the
// legacy stream. Every use of a block here follows an event (tests/order covers the rest).
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "alloc/memory.hpp"
#include "support/driver_under_test.hpp"
#include "support/unseen_program.hpp"

namespace cuvmm::test {

// Which side served an allocation.
enum class By : std::uint8_t { Us, Driver };

class Program {
 public:
  static constexpr int devices = 2;
  static constexpr int pools_a_device = 2;  // beside the default one

  explicit Program(const MemorySettings& settings);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  Memory& memory() { return *memory_; }
  CUcontext context(int device) const { return there(device).context->get(); }
  void make_current(int device) const { GIVEN(driver().cuCtxSetCurrent(context(device))); }
  CUmemoryPool default_pool(int device) const { return there(device).default_pool; }
  CUmemoryPool pool(int device, int index) const {
    return there(device).pools[static_cast<std::size_t>(index)];
  }
  // All work is the kernel `touch` with one pointer, to the description of its work.
  CUresult launch(int device, CUstream stream, void* work);

  CUresult allocate(CUdeviceptr* address, Size size, By* by);
  CUresult allocate_ordered(CUdeviceptr* address, Size size, CUmemoryPool pool, CUstream stream,
                            By* by);  // nullptr: of the current pool
  CUresult free(CUdeviceptr address);
  CUresult free_ordered(CUdeviceptr address, CUstream stream);

  CUresult record(CUevent event, CUstream stream);
  CUresult wait_for(CUstream stream, CUevent event);
  CUresult synchronize(CUstream stream);
  CUresult synchronize(CUevent event);
  CUresult query(CUstream stream);
  CUresult query(CUevent event);
  CUresult synchronize_context();  // the current one

  CUstream make_stream(unsigned flags);
  void end_stream(CUstream stream);
  CUcontext make_context(int device);  // the new context becomes current
  void end_context(CUcontext context);
  CUmemoryPool make_pool(int device);
  void end_pool(CUmemoryPool pool);
  void trim(CUmemoryPool pool, Size keep);

  CUresult begin_capture(CUstream stream, CUstreamCaptureMode mode);
  CUresult end_capture(CUstream stream, CUgraph* graph);

 private:
  struct Device {
    std::unique_ptr<PrimaryContext> context;
    CUmodule module = nullptr;
    CUfunction touch = nullptr;
    CUmemoryPool default_pool = nullptr;
    std::array<CUmemoryPool, pools_a_device> pools{};
  };
  const Device& there(int device) const { return devices_[static_cast<std::size_t>(device)]; }

  // As in the doors: retries once if cuvmm could release memory for the call.
  template <class Call>
  CUresult forwarded(Call call) {
    const CUresult answer = call();
    return answer == CUDA_ERROR_OUT_OF_MEMORY && memory().make_room() ? call() : answer;
  }

  CallBarrier calls_{CallBarrier::Of::Calls};
  Captures captures_;
  Gate gate_;
  SubmissionEpoch submission_epoch_;
  StreamClock clock_{driver(), unseen_program(captures_, gate_)};
  std::unique_ptr<Memory> memory_;
  std::array<Device, devices> devices_;
};

}  // namespace cuvmm::test
