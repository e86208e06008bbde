// SPDX-License-Identifier: Apache-2.0
#include "order/world.hpp"

#include <cstring>

#include "order/report.hpp"

namespace cuvmm::order {
namespace {

constexpr int event_count = 8;

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

CUmemoryPool create_pool() {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  CUmemoryPool pool = nullptr;
  must(cuMemPoolCreate(&pool, &properties), "cuMemPoolCreate");
  return pool;
}

}  // namespace

World::World() {
  must(cuInit(0), "cuInit");
  must(cuDevicePrimaryCtxRetain(&context_, 0), "cuDevicePrimaryCtxRetain");
  must(cuCtxSetCurrent(context_), "cuCtxSetCurrent");

  pools_.resize(1);
  must(cuDeviceGetDefaultMemPool(&pools_.front(), 0), "cuDeviceGetDefaultMemPool");
  pools_.push_back(create_pool());

  events_.resize(event_count);
  for (CUevent& event : events_) {
    must(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  }

  streams_.push_back({StreamKind::Legacy, CU_STREAM_LEGACY});
  for (int thread = 0; thread <= host_threads; ++thread) {
    streams_.push_back({StreamKind::PerThread, CU_STREAM_PER_THREAD, thread});
    if (thread != 0) threads_.push_back(std::make_unique<HostThread>(context_));
  }
  for (const StreamKind kind : {StreamKind::NonBlocking, StreamKind::Blocking}) {
    for (const int priority : {0, 0, -1}) streams_.push_back({kind, create_stream(kind, priority)});
  }
  capture_stream_ = create_stream(StreamKind::NonBlocking, 0);
  for (auto& waiter : waiters_) waiter = std::make_unique<HostThread>(context_);

  gates_ = static_cast<std::uint32_t*>(pinned(gate_words * sizeof *gates_));
  must(cuMemHostGetDevicePointer(&gates_on_device_, gates_, 0), "cuMemHostGetDevicePointer");
  results_ = static_cast<std::uint32_t*>(pinned(result_words * sizeof *results_));
}

World::~World() {
  threads_.clear();
  for (auto& waiter : waiters_) waiter.reset();
  for (const CUevent event : events_) must(cuEventDestroy(event), "cuEventDestroy");
  for (const WorldStream& stream : streams_) {
    const bool is_created =
        stream.kind == StreamKind::NonBlocking || stream.kind == StreamKind::Blocking;
    if (is_created) must(cuStreamDestroy(stream.handle), "cuStreamDestroy");
  }
  must(cuStreamDestroy(capture_stream_), "cuStreamDestroy");
  must(cuMemPoolTrimTo(pools_.front(), 0), "cuMemPoolTrimTo");
  must(cuMemPoolDestroy(pools_.back()), "cuMemPoolDestroy");
  must(cuMemFreeHost(gates_), "cuMemFreeHost");
  must(cuMemFreeHost(results_), "cuMemFreeHost");
}

void World::replace_stream(std::size_t index) {
  WorldStream& stream = streams_[index];
  must(cuStreamDestroy(stream.handle), "cuStreamDestroy");
  stream.handle = create_stream(stream.kind, 0);
}

void World::replace_thread(int index) {
  auto& thread = threads_[static_cast<std::size_t>(index) - 1];
  thread.reset();
  thread = std::make_unique<HostThread>(context_);
}

}  // namespace cuvmm::order
