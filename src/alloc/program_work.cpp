// SPDX-License-Identifier: Apache-2.0
#include "alloc/program_work.hpp"

#include "driver/current_context.hpp"

namespace cuvmm {

bool ProgramWork::is_capturing_by_driver(StreamName stream) const {
  const Driver& driver = dependencies_.driver;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return driver.cuStreamIsCapturing(stream.explicit_handle(), &status) != CUDA_SUCCESS ||
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

bool ProgramWork::wait_before_free(ContextMemory& context) {
  if (free_ == FreeMode::Exact) return wait_for(context).ok();
  if (!dependencies_.gate.close(now_ns())) return false;
  const bool is_done = dependencies_.clock.is_all_done(context.context());
  dependencies_.gate.open();
  return is_done;
}

// Synchronising breaks a capture that another thread begins meanwhile. A free does not, but it
// needs room on the card for the probe.
CUresult ProgramWork::wait_for_the_current_context() {
  if (dependencies_.captures.ever()) {
    const CUresult answer = free_as_the_driver_does();
    if (answer != CUDA_ERROR_OUT_OF_MEMORY) return answer;
  }
  const Captures::CaptureBlock held_off{dependencies_.captures};
  return held_off.none_lives() ? dependencies_.driver.cuCtxSynchronize_v2000()
                               : free_as_the_driver_does();
}

CUresult ProgramWork::error_of_lost_context() const {
  if (!has_lost_a_context()) return CUDA_SUCCESS;
  std::size_t free = 0;
  std::size_t total = 0;
  const CUresult answer = dependencies_.driver.cuMemGetInfo(&free, &total);
  return is_sticky(answer) ? answer : CUDA_SUCCESS;
}

// Waits without a time limit, as the driver does.
Result<void> ProgramWork::wait_for(ContextMemory& context) {
  const std::uint64_t note = dependencies_.submission_epoch.take();
  if (dependencies_.sees_everything() && context.covered_note().load() == note) return {};
  const Horizon horizon = dependencies_.clock.horizon_of(context.context());
  const InContext in_context{dependencies_.driver, context.context()};
  const CUresult answer = in_context.ok() ? wait_for_the_current_context() : in_context.answer();
  if (is_sticky(answer)) context_is_lost(context.context());
  TRY(dependencies_.driver.check(answer, "wait for the context"));
  horizon.reached();
  context.covered_note().store(note);
  return {};
}

// Runs in the program's own capture mode, so that beside a capture the driver refuses or waits as
// it would for the program.
Result<void> ProgramWork::wait_for(CUcontext context) {
  const InContext in_context{dependencies_.driver, context};
  const CUresult answer = in_context.ok() ? wait_for_the_current_context() : in_context.answer();
  if (is_sticky(answer)) context_is_lost(context);
  return dependencies_.driver.check(answer, "wait for the context");
}

CUresult ProgramWork::free_as_the_driver_does() {
  CUdeviceptr probe = 0;
  CUresult answer = dependencies_.driver.cuMemAlloc(&probe, 1);
  if (answer == CUDA_ERROR_OUT_OF_MEMORY && reclaim_.make_room()) {
    answer = dependencies_.driver.cuMemAlloc(&probe, 1);
  }
  if (answer != CUDA_SUCCESS) return answer;
  answer = dependencies_.driver.cuMemFree(probe);
  if (answer == CUDA_SUCCESS) return answer;
  // A capture that forbids the free began between the two calls.
  const RelaxedCapture relaxed{dependencies_.driver};
  dependencies_.driver.cuMemFree(probe);
  return answer;
}

// The driver refuses to read a pool's attribute beside a capture wherever it refuses a free
// (measured).
CUresult ProgramWork::refusal_of_free(CUdevice device) const {
  const Driver& driver = dependencies_.driver;
  CUmemoryPool pool = nullptr;
  const CUresult found = driver.cuDeviceGetDefaultMemPool(&pool, device);
  if (found != CUDA_SUCCESS) return found;
  int value = 0;
  return driver.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &value);
}

}  // namespace cuvmm
