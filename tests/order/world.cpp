// SPDX-License-Identifier: Apache-2.0
#include "order/world.hpp"

#include <algorithm>
#include <cstring>

#include "order/report.hpp"

namespace cuvmm::order {
namespace {

constexpr std::size_t event_count = 8;

CUstream create_stream(StreamKind kind, int priority) {
  const unsigned flags =
      kind == StreamKind::NonBlocking ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT;
  CUstream stream = nullptr;
  must(cuStreamCreateWithPriority(&stream, flags, priority), "cuStreamCreateWithPriority");
  return stream;
}

void* pinned(std::size_t bytes) {
  void* host = nullptr;
  must(cuMemHostAlloc(&host, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
       "cuMemHostAlloc");
  std::memset(host, 0, bytes);
  return host;
}

CUmemoryPool create_pool(int device) {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  CUmemoryPool pool = nullptr;
  must(cuMemPoolCreate(&pool, &properties), "cuMemPoolCreate");
  return pool;
}

CUmemoryPool default_pool(int device) {
  CUmemoryPool pool = nullptr;
  must(cuDeviceGetDefaultMemPool(&pool, device), "cuDeviceGetDefaultMemPool");
  return pool;
}

CUcontext create_context(int device, bool is_primary) {
  CUcontext context = nullptr;
  if (is_primary) {
    must(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    return context;
  }
  must(cuCtxCreate(&context, nullptr, 0, device), "cuCtxCreate");
  CUcontext popped = nullptr;
  must(cuCtxPopCurrent(&popped), "cuCtxPopCurrent");
  return context;
}

}  // namespace

InContext::InContext(CUcontext context) {
  CUcontext current = nullptr;
  must(cuCtxGetCurrent(&current), "cuCtxGetCurrent");
  if (current == context) return;
  must(cuCtxPushCurrent(context), "cuCtxPushCurrent");
  is_pushed_ = true;
}

InContext::~InContext() {
  CUcontext popped = nullptr;
  if (is_pushed_) must(cuCtxPopCurrent(&popped), "cuCtxPopCurrent");
}

World::World(std::size_t contexts) {
  must(cuInit(0), "cuInit");
  add_contexts(contexts);
  must(cuCtxSetCurrent(first_context()), "cuCtxSetCurrent");
  add_pools();
  for (int thread = 1; thread <= host_threads; ++thread) {
    threads_.push_back(std::make_unique<HostThread>(first_context()));
  }
  for (std::size_t context = 0; context < contexts_.size(); ++context) {
    const InContext current{contexts_[context].handle};
    add_streams_and_events(context);
  }
  capture_stream_ = create_stream(StreamKind::NonBlocking, 0);
  for (auto& waiter : waiters_) waiter = std::make_unique<HostThread>(first_context());

  gates_ = static_cast<std::uint32_t*>(pinned(gate_words * sizeof *gates_));
  must(cuMemHostGetDevicePointer(&gates_on_device_, gates_, 0), "cuMemHostGetDevicePointer");
  results_ = static_cast<std::uint32_t*>(pinned(result_words * sizeof *results_));
}

void World::add_contexts(std::size_t count) {
  must(cuDeviceGetCount(&devices_), "cuDeviceGetCount");
  devices_ = std::min(devices_, static_cast<int>(count));
  for (std::size_t i = 0; i < count; ++i) {
    const int device = static_cast<int>(i) % devices_;
    const bool is_primary = static_cast<int>(i) < devices_;
    contexts_.push_back({create_context(device, is_primary), device, is_primary});
  }
}

void World::add_pools() {
  for (int device = 0; device < devices_; ++device) {
    pools_.push_back({default_pool(device), device, true});
    pools_.push_back({create_pool(device), device, false});
  }
  for (const WorldPool& pool : pools_) {
    for (int device = 0; device < devices_; ++device) {
      if (device == pool.device) continue;
      const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, {device}},
                                   CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
      must(cuMemPoolSetAccess(pool.handle, &access, 1), "cuMemPoolSetAccess");
    }
  }
}

// Fewer of each with several contexts, so that they still meet.
void World::add_streams_and_events(std::size_t context) {
  const bool is_only = contexts_.size() == 1;
  const auto count = [&](std::size_t of_one) { return is_only ? of_one : of_one / 2 + 1; };
  for (std::size_t i = 0; i < count(event_count); ++i) {
    CUevent event = nullptr;
    must(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    events_.push_back({event, context});
  }
  streams_.push_back({StreamKind::Legacy, CU_STREAM_LEGACY, context});
  for (int thread = 0; thread <= (is_only ? host_threads : 1); ++thread) {
    streams_.push_back({StreamKind::PerThread, CU_STREAM_PER_THREAD, context, thread});
  }
  for (const StreamKind kind : {StreamKind::NonBlocking, StreamKind::Blocking}) {
    for (std::size_t i = 0; i < count(3); ++i) {
      const int priority = i == 2 ? -1 : 0;
      streams_.push_back({kind, create_stream(kind, priority), context});
    }
  }
}

World::~World() {
  threads_.clear();
  for (auto& waiter : waiters_) waiter.reset();
  for (const WorldEvent& event : events_) must(cuEventDestroy(event.handle), "cuEventDestroy");
  for (const WorldStream& stream : streams_) {
    if (stream.is_created()) must(cuStreamDestroy(stream.handle), "cuStreamDestroy");
  }
  must(cuStreamDestroy(capture_stream_), "cuStreamDestroy");
  for (const WorldPool& pool : pools_) {
    if (pool.is_default) {
      must(cuMemPoolTrimTo(pool.handle, 0), "cuMemPoolTrimTo");
    } else {
      must(cuMemPoolDestroy(pool.handle), "cuMemPoolDestroy");
    }
  }
  must(cuMemFreeHost(gates_), "cuMemFreeHost");
  must(cuMemFreeHost(results_), "cuMemFreeHost");
  for (const WorldContext& context : contexts_) {
    if (!context.is_primary) must(cuCtxDestroy(context.handle), "cuCtxDestroy");
  }
}

void World::replace_stream(std::size_t index) {
  WorldStream& stream = streams_[index];
  const InContext current{context_of(stream)};
  must(cuStreamDestroy(stream.handle), "cuStreamDestroy");
  stream.handle = create_stream(stream.kind, 0);
}

void World::replace_thread(int index) {
  auto& thread = threads_[static_cast<std::size_t>(index) - 1];
  thread.reset();
  thread = std::make_unique<HostThread>(first_context());
}

}  // namespace cuvmm::order
