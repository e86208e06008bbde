// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <memory>

namespace cuvmm {

// What has ended and given back everything but itself. A thread that looked an address up a moment
// ago, without a lock, may still read there, so the last few are kept. Guarded by its owner's lock.
template <class Ended>
class JustEnded {
 public:
  // What is old enough to go: the caller drops it, once it holds no lock.
  [[nodiscard]] std::unique_ptr<Ended> add(std::unique_ptr<Ended> one) {
    constexpr std::size_t most_kept = 16;
    kept_.push_back(std::move(one));
    if (kept_.size() <= most_kept) return nullptr;
    std::unique_ptr<Ended> oldest = std::move(kept_.front());
    kept_.pop_front();
    return oldest;
  }

 private:
  std::deque<std::unique_ptr<Ended>> kept_;
};

}  // namespace cuvmm
