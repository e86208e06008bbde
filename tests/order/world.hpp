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

struct WorldStream {
  StreamKind kind;
  CUstream handle;
  int thread = any_thread;  // a per-thread stream's own: 0 is the main thread

  static constexpr int any_thread = -1;
};

class World {
 public:
  static constexpr int host_threads = 3;  // beside the main thread
  static constexpr std::size_t gate_words = 1024;
  static constexpr std::size_t result_words = std::size_t{1} << 18;

  World();
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  CUcontext context() const { return context_; }
  const std::vector<CUmemoryPool>& pools() const { return pools_; }  // the first: the default pool
  const std::vector<CUevent>& events() const { return events_; }
  CUstream capture_stream() const { return capture_stream_; }  // never has work of its own

  const std::vector<WorldStream>& streams() const { return streams_; }
  // Destroys a created stream, whatever work it has, and makes another of its kind.
  void replace_stream(std::size_t index);

  // 1 … host_threads.
  HostThread& thread(int index) { return *threads_[static_cast<std::size_t>(index) - 1]; }
  // Ends the thread, and with it its per-thread stream, and makes another.
  void replace_thread(int index);
  // Threads for calls that wait.
  std::array<std::unique_ptr<HostThread>, 2>& waiters() { return waiters_; }

  // Pinned words: taken once, since on a card pinning waits for a blocking free.
  std::uint32_t* gates() const { return gates_; }
  CUdeviceptr gates_on_device() const { return gates_on_device_; }
  std::uint32_t* results() const { return results_; }

 private:
  CUcontext context_ = nullptr;
  std::vector<CUmemoryPool> pools_;
  std::vector<CUevent> events_;
  std::vector<WorldStream> streams_;
  CUstream capture_stream_ = nullptr;
  std::uint32_t* gates_ = nullptr;
  CUdeviceptr gates_on_device_ = 0;
  std::uint32_t* results_ = nullptr;
  std::vector<std::unique_ptr<HostThread>> threads_;
  std::array<std::unique_ptr<HostThread>, 2> waiters_;
};

}  // namespace cuvmm::order
