// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "stream/stream_order.hpp"

namespace cuvmm {

// The order of streams as a pool may use it: the program can forbid the ways in which one stream
// takes what another freed.
class PoolOrder final : public StreamOrder {
 public:
  explicit PoolOrder(StreamOrder& order) : order_(order) {}

  void follow_events(bool on) { follows_events_.store(on, std::memory_order_relaxed); }
  void allow_opportunistic(bool on) { is_opportunistic_.store(on, std::memory_order_relaxed); }

  void add_dependencies(bool on) { adds_dependencies_.store(on, std::memory_order_relaxed); }

  bool is_before(const FreeTicket& freed, StreamId asker) const override {
    if (freed.stream == asker) return true;
    if (follows_events_.load(std::memory_order_relaxed)) return order_.is_before(freed, asker);
    return is_free_for_anyone(freed);
  }
  bool is_done(const FreeTicket& freed) const override { return order_.is_done(freed); }
  bool is_free_for_anyone(const FreeTicket& freed) const override {
    return is_opportunistic_.load(std::memory_order_relaxed) ? order_.is_done(freed)
                                                             : order_.was_waited_for(freed);
  }
  // Without it only what the program waited for is known to be done.
  void look(StreamId stream) override {
    if (is_opportunistic_.load(std::memory_order_relaxed)) order_.look(stream);
  }
  void poll_for_eviction(StreamId stream) override { order_.look(stream); }
  bool is_across_barrier(const FreeTicket& freed, StreamId asker) const override {
    return order_.is_across_barrier(freed, asker);
  }
  void mark_own(StreamId asker) override { order_.mark_own(asker); }
  void memory_is_short() override { order_.memory_is_short(); }
  bool can_follow(const FreeTicket& freed, StreamId asker) const override {
    return follows_events_.load(std::memory_order_relaxed) &&
           adds_dependencies_.load(std::memory_order_relaxed) && order_.can_follow(freed, asker);
  }
  bool follow(const FreeTicket& freed, StreamId asker) override {
    return order_.follow(freed, asker);
  }
  bool wait(const FreeTicket& freed, std::uint64_t until) override {
    return order_.wait(freed, until);
  }

 private:
  StreamOrder& order_;
  std::atomic<bool> follows_events_{true};
  std::atomic<bool> is_opportunistic_{true};
  std::atomic<bool> adds_dependencies_{true};
};

}  // namespace cuvmm
