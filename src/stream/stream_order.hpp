// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/clock.hpp"
#include "stream/free_ticket.hpp"

namespace cuvmm {

// What is known of how the streams' work is ordered (docs/stream_order.md). Everything may be
// called from any thread.
class StreamOrder {
 public:
  virtual ~StreamOrder() = default;

  // The work that `asker` has been given, and all that it is given from now on, runs after
  // everything that came before the free. Never calls the driver.
  virtual bool is_before(const FreeTicket& freed, StreamId asker) const = 0;

  // The device has done all of it, as far as is known: the memory may be used by anybody, and
  // unmapped. Never calls the driver.
  virtual bool is_done(const FreeTicket& freed) const = 0;

  // The same, as far as a pool that asks may act on it: the memory may be given to any stream.
  virtual bool is_free_for_anyone(const FreeTicket& freed) const { return is_done(freed); }
  // The program itself has waited for it.
  virtual bool was_waited_for(const FreeTicket& freed) const { return is_done(freed); }

  // The legacy rule alone may order `asker` behind that free.
  virtual bool is_across_barrier(const FreeTicket& freed, StreamId asker) const {
    static_cast<void>(freed);
    static_cast<void>(asker);
    return false;
  }

  // Asks how far the device has come with what was freed on `stream`. Never waits, whatever the
  // stream is doing, so locks may be held.
  virtual void look(StreamId stream) = 0;

  // The same for memory that is to be evicted, regardless of who may reuse it.
  virtual void look_before_leaving(StreamId stream) { look(stream); }

  // What the calling thread's operation on `asker` makes known of what was freed there before. May
  // wait as any submission to the stream may, so no lock is held.
  virtual void mark_own(StreamId asker) { static_cast<void>(asker); }

  // Whether follow() can order `asker` behind that free. Never calls the driver.
  virtual bool can_follow(const FreeTicket& freed, StreamId asker) const {
    static_cast<void>(freed);
    static_cast<void>(asker);
    return false;
  }
  // Makes `asker`, on which the calling thread allocates, wait for that free and for nothing that
  // was submitted after it. False where that cannot be. No lock is held.
  virtual bool follow(const FreeTicket& freed, StreamId asker) {
    static_cast<void>(freed);
    static_cast<void>(asker);
    return false;
  }

  // Memory has run short: from now on frees leave what can_follow() needs.
  virtual void memory_is_short() {}

  // Until is_done(freed), or until now_ns() is `until`. False where it was not done by then.
  virtual bool wait(const FreeTicket& freed, std::uint64_t until) = 0;
};

}  // namespace cuvmm
