// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <vector>

#include "base/lock.hpp"
#include "driver/cuda.hpp"
#include "sched/operation.hpp"

namespace cuvmm {

// Errors of calls that the driver refused after the program had been told that they succeeded. Each
// is reported once, by the next wait or query that covers it, like an error of the work itself.
class Failures {
 public:
  void add(const Request& request, CUresult answer);
  // CUDA_SUCCESS if there was none.
  CUresult take_of_stream(StreamId stream);
  CUresult take_of_context(CUcontext context);
  void context_ended(CUcontext context);

  // A context is lost: from now on the driver itself answers every call.
  void context_is_lost() { any_lost_.store(true, std::memory_order_release); }
  bool is_any_context_lost() const { return any_lost_.load(std::memory_order_acquire); }

 private:
  struct Failure {
    CUcontext context = nullptr;
    StreamId stream = no_stream;
    CUresult answer = CUDA_SUCCESS;
  };
  template <class Covers>
  CUresult take(Covers&& covers);

  std::atomic<bool> any_{false};
  std::atomic<bool> any_lost_{false};
  Lock lock_{LockOrder::Failures};  // guards what follows
  std::vector<Failure> failures_;
};

}  // namespace cuvmm
