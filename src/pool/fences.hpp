// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "base/lock.hpp"
#include "driver/driver.hpp"

namespace cuvmm {

// Work that uses a pool's memory, as far as the pool was told of it. Each fence is an event behind
// everything that its stream had been given by then.
class Fences {
 public:
  explicit Fences(const Driver& driver) : driver_(driver) {}
  Fences(const Fences&) = delete;
  Fences& operator=(const Fences&) = delete;

  // Everything on the stream so far. The default streams are those of the current context.
  Result<void> add(CUstream stream);

  // Until everything added before is done. Work of a context that has ended, or is dead by an
  // error, is over too; the latter is said by an Error. After any other Error it may still run.
  Result<void> wait();
  // Nothing that was added runs any more. Does not wait.
  bool is_idle() const;

 private:
  struct Fence {
    Fence(const Driver& of, CUcontext in) : driver(of), context(in) {}
    ~Fence();
    Fence(const Fence&) = delete;
    Fence& operator=(const Fence&) = delete;

    CUresult wait() const;
    bool is_done() const;

    const Driver& driver;
    CUcontext context;
    CUevent event = nullptr;
  };
  using Shared = std::shared_ptr<Fence>;

  Result<CUcontext> context_of(CUstream stream) const;
  void forget(const std::vector<Shared>& over);

  const Driver& driver_;

  mutable Lock lock_{LockOrder::PoolFences};  // guards what follows
  std::vector<Shared> pending_;
  std::size_t look_at_ = 16;  // how many there are when those that are done are looked for
};

}  // namespace cuvmm
