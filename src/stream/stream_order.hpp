// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/clock.hpp"
#include "stream/free_ticket.hpp"

namespace cuvmm {

// What is known of how the streams' work is ordered. Everything may be called from any thread; only
// look(), follow() and wait() call the driver, and they take no lock that is taken before
// StreamOrder.
class StreamOrder {
 public:
  virtual ~StreamOrder() = default;

  // Work that `asker` is given from now on runs after everything that came before the free.
  virtual bool is_before(const FreeTicket& freed, StreamId asker) const = 0;

  // The device has done all of it, as far as we have looked: the memory may be used by anybody, and
  // unmapped. Never calls the driver.
  virtual bool is_done(const FreeTicket& freed) const = 0;

  // Looks how far the device has come with everything that was freed on `stream` so far; marks the
  // place in the stream's work where that is not done yet.
  virtual void look(StreamId stream) = 0;

  // The same for memory that is to leave, whoever may reuse it.
  virtual void look_before_leaving(StreamId stream) { look(stream); }

  // Lets what `asker` is given from now on run after everything freed on that stream so far. False
  // where that cannot be, or was so already.
  virtual bool follow(StreamId stream, StreamId asker) {
    static_cast<void>(stream);
    static_cast<void>(asker);
    return false;
  }

  // Until is_done(freed), or until now_ns() is `until`. False where it was not done by then.
  virtual bool wait(const FreeTicket& freed, std::uint64_t until) = 0;
};

}  // namespace cuvmm
