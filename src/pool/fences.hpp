// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "base/lock.hpp"
#include "driver/current_context.hpp"

namespace cuvmm {

// The work that uses a pool's memory, as the program has fenced it. Each fence is an event
// recorded behind all work submitted to its stream so far.
class Fences {
 public:
  explicit Fences(const Driver& driver) : driver_(driver) {}
  Fences(const Fences&) = delete;
  Fences& operator=(const Fences&) = delete;

  // Adds a fence behind everything on the stream so far. Default streams are those of the current
  // context.
  Result<void> add(CUstream stream);

  // Waits until all fences added before are done. Work of a context that has ended, or that an
  // error has killed, counts as done; in the latter case it returns an Error. After any other Error
  // the work may still be running.
  Result<void> wait();
  // Whether all fences are done. Does not wait.
  bool is_idle() const;

 private:
  struct Fence {
    Fence(const Driver& of, CUcontext in) : driver(of), context(KnownContext::of(of, in)) {}
    ~Fence();
    Fence(const Fence&) = delete;
    Fence& operator=(const Fence&) = delete;

    CUresult wait() const;
    bool is_done() const;

    const Driver& driver;
    KnownContext context;
    CUevent event = nullptr;
  };
  using Shared = std::shared_ptr<Fence>;

  Result<CUcontext> context_of(CUstream stream) const;
  void forget(const std::vector<Shared>& over);

  const Driver& driver_;

  mutable Lock lock_{LockOrder::PoolFences};  // guards what follows
  std::vector<Shared> pending_;
  std::size_t look_at_ = 16;  // number of fences at which to look for completed ones
};

}  // namespace cuvmm
