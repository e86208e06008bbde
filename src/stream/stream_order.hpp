// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stream/free_ticket.hpp"

namespace cuvmm {

// Answers questions about the order of streams' work (docs/internals/stream_order.md). All
// functions are thread-safe.
class StreamOrder {
 public:
  virtual ~StreamOrder() = default;

  // True if all work of `asker`, past and future, runs after everything that came before the free.
  // Never calls the driver.
  virtual bool is_before(const FreeTicket& freed, StreamId asker) const = 0;

  // True if the device is known to have completed everything before the free: any stream may use
  // the memory, and it may be unmapped. Never calls the driver.
  virtual bool is_done(const FreeTicket& freed) const = 0;

  // The same, within the reuse policy of the pool that asks: any stream may be given the memory.
  virtual bool is_free_for_anyone(const FreeTicket& freed) const { return is_done(freed); }
  // True if the program itself has waited for everything before the free.
  virtual bool was_waited_for(const FreeTicket& freed) const { return is_done(freed); }

  // Whether only the legacy rule might order `asker` after that free.
  virtual bool is_across_barrier(const FreeTicket& freed, StreamId asker) const {
    static_cast<void>(freed);
    static_cast<void>(asker);
    return false;
  }

  // Queries how far the device has come with the memory freed on `stream`. Never waits, whatever
  // the stream is doing, so callers may hold locks.
  virtual void look(StreamId stream) = 0;

  // The same for memory that is to be evicted, regardless of which streams may reuse it.
  virtual void poll_for_eviction(StreamId stream) { look(stream); }

  // Marks the earlier frees on `asker`, using the calling thread's operation on that stream. May
  // wait as any submission to the stream may, so callers hold no lock.
  virtual void mark_own(StreamId asker) { static_cast<void>(asker); }

  // Whether follow() can order `asker` behind that free. Never calls the driver.
  virtual bool can_follow(const FreeTicket& freed, StreamId asker) const {
    static_cast<void>(freed);
    static_cast<void>(asker);
    return false;
  }
  // Makes `asker`, on which the calling thread allocates, wait for that free and for nothing
  // submitted after it. Returns false if that is impossible. Callers hold no lock.
  virtual bool follow(const FreeTicket& freed, StreamId asker) {
    static_cast<void>(freed);
    static_cast<void>(asker);
    return false;
  }

  // Memory has run short: from now on, frees leave the marks that can_follow() needs.
  virtual void memory_is_short() {}

  // Waits until is_done(freed) or until now_ns() reaches `until`. Returns false on timeout.
  virtual bool wait(const FreeTicket& freed, std::uint64_t until) = 0;
};

}  // namespace cuvmm
