// SPDX-License-Identifier: Apache-2.0
#include "program.hpp"

namespace cuvmm::test {
namespace {

constexpr const char* touch_ptx = R"(
.version 7.0
.target sm_50
.address_size 64

.visible .entry stress_touch(.param .u64 work)
{
  ret;
}
)";

StreamName name(CUstream stream) {
  return {.handle = stream};
}

}  // namespace

Program::Program(const MemorySettings& settings) {
  memory_ = std::make_unique<Memory>(Memory::Dependencies{driver(), clock_, captures_, gate_,
                                                          submission_epoch_, [] { return true; }},
                                     settings);
  for (int device = 0; device < devices; ++device) {
    Device& made = devices_[static_cast<std::size_t>(device)];
    made.context = std::make_unique<PrimaryContext>(device);
    GIVEN(driver().cuModuleLoadData(&made.module, touch_ptx));
    GIVEN(driver().cuModuleGetFunction(&made.touch, made.module, "stress_touch"));
    GIVEN(driver().cuDeviceGetDefaultMemPool(&made.default_pool, device));
    for (CUmemoryPool& pool : made.pools) pool = make_pool(device);
    // Served before the first fault is injected: memory that cannot be set up would stay the
    // driver's.
    make_current(device);
    GIVEN(memory_->pools().serve(made.default_pool) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN);
    for (CUmemoryPool pool : made.pools) {
      GIVEN(memory_->pools().serve(pool) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN);
    }
  }
}

Program::~Program() {
  for (Device& device : devices_) {
    for (CUmemoryPool pool : device.pools) end_pool(pool);
  }
  memory_.reset();
  for (int device = devices - 1; device >= 0; --device) {
    Device& ended = devices_[static_cast<std::size_t>(device)];
    make_current(device);
    driver().cuModuleUnload(ended.module);
    ended.context.reset();
  }
}

CUresult Program::launch(int device, CUstream stream, void* work) {
  const Gate::Pass pass{gate_};
  void* parameters[] = {&work};
  const CUresult answer = driver().cuLaunchKernel(there(device).touch, 1, 1, 1, 1, 1, 1, 0, stream,
                                                  parameters, nullptr);
  submission_epoch_.leave();
  return answer;
}

CUresult Program::allocate(CUdeviceptr* address, Size size, By* by) {
  const CallBarrier::Pass pass{calls_};
  const Answer answer = memory().allocate(address, size);
  *by = answer ? By::Us : By::Driver;
  return answer ? *answer : forwarded([&] { return driver().cuMemAlloc(address, size); });
}

CUresult Program::allocate_ordered(CUdeviceptr* address, Size size, CUmemoryPool pool,
                                   CUstream stream, By* by) {
  const CallBarrier::Pass pass{calls_};
  const Answer answer = pool == nullptr
                            ? memory().allocate_ordered(address, size, name(stream))
                            : memory().allocate_ordered(address, size, pool, name(stream));
  *by = answer ? By::Us : By::Driver;
  if (answer) return *answer;
  return forwarded([&] {
    const Gate::Pass through{gate_};
    return pool == nullptr ? driver().cuMemAllocAsync(address, size, stream)
                           : driver().cuMemAllocFromPoolAsync(address, size, pool, stream);
  });
}

CUresult Program::free(CUdeviceptr address) {
  const CallBarrier::Pass pass{calls_};
  const Answer answer = memory().free(address);
  return answer ? *answer : driver().cuMemFree(address);
}

CUresult Program::free_ordered(CUdeviceptr address, CUstream stream) {
  const CallBarrier::Pass pass{calls_};
  const Answer answer = memory().free_ordered(address, name(stream));
  if (answer) return *answer;
  const Gate::Pass through{gate_};
  return driver().cuMemFreeAsync(address, stream);
}

CUresult Program::record(CUevent event, CUstream stream) {
  EventPlaces::Recording recording{clock_.events(), event};
  StreamClock::Place place = clock_.place_on(name(stream));
  const CUresult answer = driver().cuEventRecord(event, stream);
  if (answer == CUDA_SUCCESS) clock_.event_recorded(recording, name(stream), std::move(place));
  return answer;
}

CUresult Program::wait_for(CUstream stream, CUevent event) {
  const EventPlaces::Recorded recorded = clock_.events().last_record(event);
  const CUresult answer = driver().cuStreamWaitEvent(stream, event, 0);
  if (answer == CUDA_SUCCESS) clock_.waited_for_by(name(stream), event, recorded);
  return answer;
}

CUresult Program::synchronize(CUstream stream) {
  const Horizon horizon = clock_.horizon_of(name(stream));
  const StreamClock::PlacedOperations operations{clock_, name(stream)};
  CUresult answer = driver().cuStreamSynchronize(stream);
  if (answer == CUDA_SUCCESS) answer = operations.wait();
  if (answer != CUDA_SUCCESS || horizon.is_empty()) return answer;
  horizon.waited_for();
  memory().program_waited();
  return answer;
}

CUresult Program::query(CUstream stream) {
  const Horizon horizon = clock_.horizon_of(name(stream));
  const StreamClock::PlacedOperations operations{clock_, name(stream)};
  const CUresult answer = driver().cuStreamQuery(stream);
  if (answer != CUDA_SUCCESS) return answer;
  if (!operations.are_done()) return CUDA_ERROR_NOT_READY;
  horizon.reached();
  return CUDA_SUCCESS;
}

CUresult Program::synchronize(CUevent event) {
  const EventPlaces::Recorded recorded = clock_.events().last_record(event);
  const CUresult answer = driver().cuEventSynchronize(event);
  if (answer != CUDA_SUCCESS) return answer;
  if (clock_.is_reached(event, recorded, StreamTable::Told::ByAWait)) memory().program_waited();
  return answer;
}

CUresult Program::query(CUevent event) {
  const EventPlaces::Recorded recorded = clock_.events().last_record(event);
  const CUresult answer = driver().cuEventQuery(event);
  if (answer == CUDA_SUCCESS) {
    clock_.is_reached(event, recorded, StreamTable::Told::ByTheDevice);
  }
  return answer;
}

CUresult Program::synchronize_context() {
  CUcontext current = nullptr;
  GIVEN(driver().cuCtxGetCurrent(&current));
  const Horizon horizon = clock_.horizon_of(current);
  const CUresult answer = test::synchronize();
  if (answer != CUDA_SUCCESS || horizon.is_empty()) return answer;
  horizon.waited_for();
  memory().program_waited();
  return answer;
}

CUstream Program::make_stream(unsigned flags) {
  CUstream stream = nullptr;
  GIVEN(driver().cuStreamCreate(&stream, flags));
  clock_.table().find(name(stream));
  return stream;
}

void Program::end_stream(CUstream stream) {
  clock_.stream_ends(stream);
  GIVEN(driver().cuStreamDestroy(stream));
}

CUcontext Program::make_context(int device) {
  CUcontext context = nullptr;
  GIVEN(driver().cuCtxCreate_v3020(&context, 0, device));
  memory().contexts().began(context);
  return context;
}

void Program::end_context(CUcontext context) {
  GIVEN(driver().cuCtxDestroy(context));
  memory().contexts().ended(context);
}

CUmemoryPool Program::make_pool(int device) {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  CUmemoryPool pool = nullptr;
  GIVEN(driver().cuMemPoolCreate(&pool, &properties));
  memory().pools().created(pool, properties);
  return pool;
}

void Program::end_pool(CUmemoryPool pool) {
  ServedPools::Leaving leaving = memory().pools().about_to_end(pool);
  GIVEN(driver().cuMemPoolDestroy(pool));
  memory().pools().ended(std::move(leaving));
}

void Program::trim(CUmemoryPool pool, Size keep) {
  GIVEN(driver().cuMemPoolTrimTo(pool, keep));
  if (PoolMemory* ours = memory().pools().serve(pool)) ours->trim(keep);
}

CUresult Program::begin_capture(CUstream stream, CUstreamCaptureMode mode) {
  clock_.mark_pending(name(stream));
  captures_.began();
  const CUresult answer = driver().cuStreamBeginCapture(stream, mode);
  if (answer != CUDA_SUCCESS) captures_.ended();
  return answer;
}

CUresult Program::end_capture(CUstream stream, CUgraph* graph) {
  const CUresult answer = driver().cuStreamEndCapture(stream, graph);
  captures_.ended();
  return answer;
}

}  // namespace cuvmm::test
