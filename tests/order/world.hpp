// SPDX-License-Identifier: Apache-2.0
// The driver objects that all programs of one process use, one program after the other. Between two
// programs no stream has work and no memory is allocated.
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "order/host_thread.hpp"
#include "order/model.hpp"

namespace cuvmm::order {

// Contexts are spread round-robin over the devices. The first of each device is its primary
// context.
struct WorldContext {
  CUcontext handle;
  int device;
  bool is_primary;
};

struct WorldStream {
  StreamKind kind;
  CUstream handle;
  std::size_t context = 0;
  int thread = any_thread;  // a per-thread stream's own: 0 is the main thread

  static constexpr int any_thread = -1;
  bool is_created() const {
    return kind == StreamKind::NonBlocking || kind == StreamKind::Blocking;
  }
};

struct WorldEvent {
  CUevent handle;
  std::size_t context;  // its streams may record the event
};

struct WorldPool {
  CUmemoryPool handle;
  int device;
  bool is_default;
};

// While it lives, this context is current on the calling thread.
class InContext {
 public:
  explicit InContext(CUcontext context);
  ~InContext();
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;

 private:
  bool is_pushed_ = false;
};

class World {
 public:
  static constexpr int host_threads = 3;  // beside the main thread
  static constexpr std::size_t gate_words = 1024;
  static constexpr std::size_t result_words = std::size_t{1} << 18;

  explicit World(std::size_t contexts = 1);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  const std::vector<WorldContext>& contexts() const { return contexts_; }
  // All devices have access to them. The first is the default pool of device 0.
  const std::vector<WorldPool>& pools() const { return pools_; }
  const std::vector<WorldEvent>& events() const { return events_; }
  // A stream of the first context that never has work of its own.
  CUstream capture_stream() const { return capture_stream_; }

  const std::vector<WorldStream>& streams() const { return streams_; }
  CUcontext context_of(const WorldStream& stream) const { return contexts_[stream.context].handle; }
  int device_of(const WorldStream& stream) const { return contexts_[stream.context].device; }
  // Destroys a created stream, whatever work it has, and creates another of its kind.
  void replace_stream(std::size_t index);

  // Indices run from 1 to host_threads.
  HostThread& thread(int index) { return *threads_[static_cast<std::size_t>(index) - 1]; }
  // Ends the thread and thereby its per-thread streams, and starts another.
  void replace_thread(int index);
  // Threads for calls that wait.
  std::array<std::unique_ptr<HostThread>, 2>& waiters() { return waiters_; }

  // Pinned words, allocated once: on a card pinning waits for a blocking free.
  std::uint32_t* gates() const { return gates_; }
  CUdeviceptr gates_on_device() const { return gates_on_device_; }
  std::uint32_t* results() const { return results_; }

 private:
  CUcontext first_context() const { return contexts_.front().handle; }
  void add_contexts(std::size_t count);
  void add_pools();
  void add_streams_and_events(std::size_t context);

  int devices_ = 1;  // number of devices that have contexts
  std::vector<WorldContext> contexts_;
  std::vector<WorldPool> pools_;
  std::vector<WorldEvent> events_;
  std::vector<WorldStream> streams_;
  CUstream capture_stream_ = nullptr;
  std::uint32_t* gates_ = nullptr;
  CUdeviceptr gates_on_device_ = 0;
  std::uint32_t* results_ = nullptr;
  std::vector<std::unique_ptr<HostThread>> threads_;
  std::array<std::unique_ptr<HostThread>, 2> waiters_;
};

}  // namespace cuvmm::order
