// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>

#include <string>

#include "daemon/service_world.hpp"
#include "node/grant_board.hpp"

namespace cuvmm::test {

using node::TimeGrant;

// A client that does no more than its board says.
class TimeClient {
 public:
  TimeClient(const NodeService& service, const std::string& name, std::uint32_t cap = 100,
             int priority = 0)
      : raw_(RawClient::at(service, name, 0, unlimited, priority)) {
    EXPECT_TRUE(raw_.hear<node::Accepted>());
    raw_.say(node::TimeWish{cap});
    EXPECT_TRUE(raw_.hear<node::TimeBoard>());
    void* const memory = ::mmap(nullptr, sizeof(node::GrantBoard), PROT_READ | PROT_WRITE,
                                MAP_SHARED, raw_.descriptor().number(), 0);
    EXPECT_NE(memory, MAP_FAILED);
    board_ = static_cast<node::GrantBoard*>(memory);
  }
  ~TimeClient() { ::munmap(board_, sizeof *board_); }
  TimeClient(const TimeClient&) = delete;
  TimeClient& operator=(const TimeClient&) = delete;

  node::GrantWords& words() {
    for (node::GrantWords& one : board_->devices) {
      if (one.device == raw_.device()) return one;
    }
    ADD_FAILURE() << "the board does not have the device";
    return board_->devices[0];
  }
  node::GrantBoard& board() { return *board_; }
  TimeGrant grant() { return node::grant_in(words().grant.load()); }
  void want(bool does) {
    words().wants.store(does ? 1 : 0);
    raw_.say(node::TimeNews{});
  }
  // If the client has lost the grant: reports that nothing of it is in flight.
  void report_drained() {
    const std::uint32_t word = words().grant.load();
    if (node::grant_in(word) != TimeGrant::None || words().drained.exchange(word) == word) return;
    raw_.say(node::TimeNews{});
  }
  std::uint64_t beat() const { return board_->beat_ns.load(); }
  RawClient& raw() { return raw_; }

 private:
  RawClient raw_;
  node::GrantBoard* board_ = nullptr;
};

}  // namespace cuvmm::test
