// SPDX-License-Identifier: Apache-2.0
#include "alloc/device_compactor.hpp"

#include "alloc/quiesced_context.hpp"
#include "alloc/served_pools.hpp"
#include "base/log.hpp"
#include "driver/current_context.hpp"

namespace cuvmm {

Size DeviceCompactor::could_share(Size wanted) const {
  Size could = 0;
  pools_.for_each(device_, [&](PoolMemory& pool) {
    if (could < wanted) could += pool.could_share(wanted - could);
  });
  return could;
}

Size DeviceCompactor::share(Size wanted, const CopyBy& copy) const {
  Size freed = 0;
  pools_.for_each(device_, [&](PoolMemory& pool) {
    if (freed >= wanted) return;
    const Result<Size> more = pool.share(wanted - freed, copy);
    if (more.ok()) {
      freed += *more;
    } else {
      CUVMM_LOG(Warning, "device %d: %s; live memory stays where it is", device_,
                more.error().text().c_str());
    }
  });
  return freed;
}

// The current context, or that of the stream in use: the program does not end these while it makes
// a call in them. Any other context might end during the copies.
CUcontext DeviceCompactor::context_for(StreamId asker) const {
  const Driver& driver = dependencies_.driver;
  const CUcontext current = current_context(driver);
  if (current != nullptr && device_of(driver, current) == device_) return current;
  const StreamState* const stream =
      asker != no_stream ? dependencies_.clock.table().by_id(asker) : nullptr;
  return stream != nullptr && stream->device == device_ ? stream->context : nullptr;
}

// Stops the program only if that can yield enough, and not again soon after a stop that did not.
bool DeviceCompactor::make_room(Size missing, StreamId asker, std::uint64_t until) {
  if (!policy_.may_move() || dependencies_.captures.any()) return false;
  if (pace_.is_resting(MovePace::Else::Refused)) return false;
  const std::uint64_t began = now_ns();
  if (could_share(missing) < missing) {
    pace_.note(now_ns() - began, MovePace::Outcome::NoPromise);
    return false;
  }
  const CUcontext context = context_for(asker);
  if (context == nullptr) return false;
  QuiescedContext quiescence{dependencies_, policy_, context};
  const std::uint64_t waited_from = now_ns();
  if (!quiescence.begin(until)) {
    pace_.note(now_ns() - began, MovePace::Outcome::Futile);
    return false;
  }
  const std::uint64_t waited = now_ns() - waited_from;
  const Size freed = share(missing, quiescence.copy_by());
  quiescence.end();
  const std::uint64_t took = now_ns() - began;
  if (freed == 0) {
    pace_.note(took, MovePace::Outcome::Futile);
  } else {
    pace_.note(took - waited, MovePace::Outcome::Moved);
  }
  CUVMM_LOG(Info, "device %d: moved live stream-ordered memory, which freed %llu MiB in %llu us",
            device_, static_cast<unsigned long long>(freed / MiB),
            static_cast<unsigned long long>((now_ns() - began) / 1000));
  return freed != 0;
}

}  // namespace cuvmm
