// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "base/fd.hpp"
#include "node/grant_board.hpp"

namespace cuvmm::lease {

// This process' side of the board on which the node's service grants it the devices' time. The
// board stays at one address for ever: while there is no service, all zero lies there, which lets
// everything pass.
class Grants {
 public:
  // nullptr until the first board has come.
  node::GrantBoard* board() const { return board_.load(std::memory_order_acquire); }

  // Called by the connection's thread alone.
  bool take(const Fd& file);
  void lose();

 private:
  std::atomic<node::GrantBoard*> board_{nullptr};
};

class Leases;

// What takes part in sharing the devices' time.
class TimeSharer {
 public:
  // Once, when the first board has come. Both live as long as the process.
  virtual void begin(Leases& leases, Grants& grants) = 0;

 protected:
  ~TimeSharer() = default;
};

}  // namespace cuvmm::lease
