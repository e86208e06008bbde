// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>

#include "base/fd.hpp"
#include "node/grant_board.hpp"

namespace cuvmm::lease {

// This process' side of the board on which the node service grants it device time. The board's
// address never changes. While there is no service, the board is all zero, which lets all launches
// pass.
class Grants {
 public:
  // nullptr until the first board arrives.
  node::GrantBoard* board() const { return board_.load(std::memory_order_acquire); }

  // The board of a process of higher priority; nullptr if there has been none in this slot.
  const node::GrantBoard* foreground(std::uint32_t slot) const {
    return foregrounds_[slot].load(std::memory_order_acquire);
  }

  // Only the connection's thread may call these.
  bool take(const Fd& file);
  void take_foreground(std::uint32_t slot, const Fd& file);
  void lose();

 private:
  std::atomic<node::GrantBoard*> board_{nullptr};
  std::array<std::atomic<const node::GrantBoard*>, node::GrantBoard::most_foregrounds>
      foregrounds_{};
};

class Leases;

// A participant in sharing device time.
class TimeSharer {
 public:
  // Called once, when the first board arrives. Both arguments live as long as the process.
  virtual void begin(Leases& leases, Grants& grants) = 0;

 protected:
  ~TimeSharer() = default;
};

}  // namespace cuvmm::lease
