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

  // The driver has reported a sticky error. Until the context has ended, the driver itself answers
  // every call.
  void context_is_lost(CUcontext context);
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
  std::vector<CUcontext> lost_;
};

}  // namespace cuvmm
