// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/lock.hpp"
#include "stream/call_barrier.hpp"

namespace cuvmm {

// Objects that have ended, kept until no thread that looked them up without a lock can still be
// using them.
class Retired {
 public:
  // `ended` must no longer be found by lookups. This call or a later one destroys it, with no lock
  // held.
  void add(std::shared_ptr<void> ended) {
    std::optional<CallBarrier::GracePeriod> period = CallBarrier::GracePeriod::begin();
    {
      const Holding holding{lock_};
      waiting_.push_back({std::move(ended), std::move(period)});
    }
    drop();
  }
  // Destroys the objects that no thread can still be using.
  void drop() {
    std::vector<Waiting> over;
    const Holding holding{lock_};
    std::erase_if(waiting_, [&](Waiting& one) {
      if (!one.period) one.period = CallBarrier::GracePeriod::begin();
      if (!one.period || !one.period->is_over()) return false;
      over.push_back(std::move(one));
      return true;
    });
  }

  std::size_t count() const {
    const Holding holding{lock_};
    return waiting_.size();
  }

 private:
  struct Waiting {
    std::shared_ptr<void> ended;
    std::optional<CallBarrier::GracePeriod> period;  // nullopt: not begun yet
  };

  mutable Lock lock_{LockOrder::Retired};
  std::vector<Waiting> waiting_;
};

}  // namespace cuvmm
