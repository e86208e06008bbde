// SPDX-License-Identifier: Apache-2.0
// Allocation under pressure, by one thread at a time: releases cached windows, waits for frees, and
// compacts live pieces.
#include <unordered_set>

#include "alloc/windows/window_request.hpp"
#include "alloc/windows/windows.hpp"
#include "base/not_cancelled.hpp"
#include "base/undo.hpp"

namespace cuvmm {
namespace {

// A thread that stops the device to make room also makes some for the next requests.
constexpr Size chunks_to_spare = 16;

// Other threads may take the room that this one has made.
constexpr int compactions_at_most = 4;

// A thread waits this much longer for its turn than for work. The thread that has the turn may wait
// for work until its deadline; the others may then find room that takes no wait at all.
constexpr Duration longest_wait_for_others{1'000'000};

}  // namespace

class Windows::Turn {
 public:
  // Waits for the turn. Time in which live pieces are moved does not count: no work runs then that
  // could be waiting for this thread.
  Turn(Windows& windows, MemoryPressure& pressure) : windows_(windows) {
    const NotCancelled whole;
    Holding holding{windows.table_.lock};
    while (windows.turn_is_taken_) {
      const std::uint64_t now = now_ns();
      if (windows.is_compacting_) {
        windows.turn_ended_.wait(holding, [&] { return !windows.is_compacting_; });
        pressure.discount(now_ns() - now);
        continue;
      }
      const std::uint64_t until = pressure.until(windows.settings_.wait + longest_wait_for_others);
      if (now >= until) return;
      windows.turn_ended_.wait_for(holding, std::chrono::nanoseconds(until - now));
    }
    windows.turn_is_taken_ = is_mine_ = true;
  }
  ~Turn() {
    if (!is_mine_) return;
    const Holding holding{windows_.table_.lock};
    windows_.turn_is_taken_ = false;
    windows_.turn_ended_.notify_one();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  bool is_mine() const { return is_mine_; }

 private:
  Windows& windows_;
  bool is_mine_ = false;
};

Result<WindowBlock*> Windows::place_under_pressure(WindowRequest& request, MemoryPressure& pressure,
                                                   Error refusal) {
  const Turn turn{*this, pressure};
  const std::uint64_t until = pressure.until();
  ReclaimSteps& tried = pressure.tried;
  tried.add(ReclaimSteps::NewMemory);
  const auto try_again = [&] {
    Result<WindowBlock*> placed = place(request);
    if (!placed.ok()) refusal = placed.error();
    return placed;
  };
  const auto give_up_cached = [&] {
    tried.add(ReclaimSteps::CachedBlocks);
    const Holding holding{table_.lock};
    compactor_.tidy();
    return give_up_for(request);
  };
  request.look = Look::Hard;
  if (turn.is_mine()) {
    forget_refusals();
    (void)give_up_cached();
  }
  Result<WindowBlock*> placed = try_again();
  const auto lacks_room = [&] { return !placed.ok() && is_for_want_of_room(refusal); };
  if (turn.is_mine()) {
    const auto wait = [&] {
      tried.add(ReclaimSteps::PendingWork);
      return wait_for_a_free(until);
    };
    while (lacks_room() && (give_up_cached() || wait())) placed = try_again();
  }
  const auto move_live_pieces = [&]() -> Result<void> {
    for (int times = 0; lacks_room() && times < compactions_at_most; ++times) {
      tried.add(ReclaimSteps::LiveBlocks);
      if (!TRY(make_room(request, until))) break;
      placed = try_again();
    }
    return {};
  };
  const auto take_from_elsewhere = [&] {
    if (!lacks_room() || !store_.spills()) return;
    request.reach = Residency::Far;
    tried.add(ReclaimSteps::Elsewhere);
    placed = try_again();
  };
  const bool puts_off_moving = pace_.is_resting(MovePace::Else::Spilled) && may_spill(request);
  if (turn.is_mine() && !puts_off_moving) TRY(move_live_pieces());
  take_from_elsewhere();
  if (lacks_room() && turn.is_mine() && puts_off_moving) {
    request.drop_chunks();
    request.reach = Residency::Near;
    placed = try_again();
    TRY(move_live_pieces());
    take_from_elsewhere();
  }
  if (!lacks_room()) return placed;
  {
    const Holding holding{table_.lock};
    if (table_.unmap_refusal.driver_code != 0) return table_.unmap_refusal;
  }
  tried.stand_in(refusal);
  refusal.asked = request.shape.granted;
  refusal.available = request.whole_bytes;
  return refusal;
}

bool Windows::may_spill(const WindowRequest& request) {
  const Holding holding{table_.lock};
  return store_.spill_room() >= missing_bytes(request);
}

// The bytes that the store would have to supply.
Size Windows::missing_bytes(const WindowRequest& request) {
  const bool has_place = !request.shape.has_piece() || request.spare ||
                         table_.shared.find(request.shape.format(), request.look).has_value();
  return request.missing_whole() + (has_place ? 0 : table_.granule);
}

// Releases cached windows for what the request lacks. Whole chunks first, which is quick; then, for
// a piece, one window at a time, least recently freed first. Returns whether there were any.
bool Windows::give_up_for(const WindowRequest& request) {
  const std::size_t before = table_.cached.ready();
  const Size missing = missing_bytes(request);
  if (missing == 0) {
    give_up_some();
  } else if (table_.give_up_whole_chunks(missing) < missing) {
    while (table_.cached.oldest_small() != nullptr &&
           missing_bytes(request) > request.missing_whole()) {
      table_.give_up(*table_.cached.oldest_small());
    }
  }
  return table_.cached.ready() != before;
}

// For the case that memory is available, but addresses are not, or the driver refuses more
// mappings.
void Windows::give_up_some() {
  constexpr int small_ones = 1024;
  while (table_.cached.oldest_large() != nullptr) table_.give_up(*table_.cached.oldest_large());
  for (int left = small_ones; left > 0 && table_.cached.oldest_small() != nullptr; --left) {
    table_.give_up(*table_.cached.oldest_small());
  }
}

// Returns whether work that kept freed blocks from being reused is now done.
bool Windows::wait_for_a_free(std::uint64_t until) {
  FreeTicket oldest;
  std::unordered_set<StreamId> streams;
  {
    const Holding holding{table_.lock};
    const WindowBlock* block = table_.cached.oldest_pending();
    if (block == nullptr) return false;
    oldest = block->ticket();
    for (; block != nullptr; block = CachedWindows::pending_after(*block)) {
      streams.insert(block->freed_on);
    }
  }
  for (const StreamId stream : streams) table_.order.look(stream);
  {
    const Holding holding{table_.lock};
    if (table_.settle_pending() != 0) return true;
  }
  if (!table_.order.wait(oldest, until)) return false;
  const Holding holding{table_.lock};
  // May settle none, if another thread was first.
  table_.settle_pending();
  return true;
}

// Compacts live pieces. Returns whether a retry is worthwhile.
Result<bool> Windows::make_room(const WindowRequest& request, std::uint64_t until) {
  const std::uint64_t began = now_ns();
  Size missing = 0;
  {
    const Holding holding{table_.lock};
    missing = missing_bytes(request);
    if (missing == 0 || settings_.quiescence == nullptr) return false;
    if (settings_.quiescence->is_ruled_out()) return false;
    if (!compactor_.is_worthwhile(missing)) {
      pace_.note(now_ns() - began, MovePace::Outcome::NoPromise);
      return false;
    }
  }
  const std::uint64_t waited_from = now_ns();
  if (!settings_.quiescence->begin(until)) {
    pace_.note(now_ns() - began, MovePace::Outcome::Futile);
    return false;
  }
  const std::uint64_t waited = now_ns() - waited_from;
  set_compacting(true);
  const Undo end{[this] {
    set_compacting(false);
    settings_.quiescence->end();
  }};
  const Size wanted = missing + chunks_to_spare * table_.granule;
  const Result<Size> freed = compact(wanted, {settings_.quiescence->copy_by(), settings_.wait});
  pace_.note(now_ns() - began - waited, MovePace::Outcome::Moved);
  if (freed.ok()) return *freed != 0;
  if (freed.error().kind == ErrorKind::TimedOut) return false;
  return freed.error();
}

void Windows::forget_refusals() {
  const Holding holding{table_.lock};
  table_.unmap_refusal = {};
}

void Windows::set_compacting(bool is_compacting) {
  const Holding holding{table_.lock};
  is_compacting_ = is_compacting;
  turn_ended_.notify_all();  // the deadlines of the threads that wait for the turn change
}

}  // namespace cuvmm
