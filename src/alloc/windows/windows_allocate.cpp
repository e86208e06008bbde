// SPDX-License-Identifier: Apache-2.0
// Allocation: a cached window, else a new one over memory that lies vacant or comes from the store,
// and last what can be had under pressure.
#include <algorithm>
#include <unordered_set>

#include "alloc/tried.hpp"
#include "alloc/windows/window_batch.hpp"
#include "alloc/windows/windows.hpp"
#include "base/undo.hpp"

namespace cuvmm {
namespace {

constexpr const char* doing = "allocate blocking memory";

// Whoever stops a device to make room makes some for those who come next.
constexpr Size chunks_to_spare = 16;

// Others may take what one has made room for.
constexpr int compactions_at_most = 4;

// A plan that was in vain is made again after one change for so many chunks: it looks at them all.
constexpr std::size_t chunks_a_change = 1024;

bool is_for_want_of_room(const Error& error) {
  return error.kind == ErrorKind::OutOfMemory || error.kind == ErrorKind::OutOfAddresses;
}

}  // namespace

// What is at hand so far. It goes back to the store with the request.
struct Windows::Request {
  Shape shape;
  Look look = Look::Lightly;
  std::vector<ChunkRef> whole = {};  // chunks for the whole granules
  Size whole_bytes = 0;
  ChunkRef spare = {};          // to be shared, for the piece
  bool needs_spare = false;     // no place for the piece was found, when it was last looked for
  std::vector<Size> cuts = {};  // where chunks of the block that it may take over from end
  Size unbacked = 0;            // at the beginning, to be left without memory
  Lies reach = Lies::Near;      // Far: the device has no room, however hard one looks

  Size backed_whole() const { return shape.whole_bytes() - unbacked; }
  Size missing_whole() const { return backed_whole() - whole_bytes; }
  // Of the next chunk, the largest that crosses no cut.
  Size next_whole() const {
    const Size reached = unbacked + whole_bytes;
    const auto cut = std::upper_bound(cuts.begin(), cuts.end(), reached);
    return (cut != cuts.end() ? *cut : shape.whole_bytes()) - reached;
  }
  void add_whole(ChunkRef chunk) {
    whole_bytes += chunk->size();
    whole.push_back(std::move(chunk));
  }
};

class Windows::Turn {
 public:
  // Waits for it, but for no longer than the settings say; while live pieces are moved, no work
  // runs that could be waiting for us, and that time does not count.
  explicit Turn(Windows& windows) : windows_(windows) {
    Holding holding{windows.lock_};
    std::uint64_t until = windows.deadline();
    while (windows.turn_is_taken_) {
      if (windows.is_compacting_) until = windows.deadline();
      const std::uint64_t now = now_ns();
      if (now >= until) return;
      windows.turn_ended_.wait_for(holding, std::chrono::nanoseconds(until - now));
    }
    windows.turn_is_taken_ = is_mine_ = true;
  }
  ~Turn() {
    if (!is_mine_) return;
    const Holding holding{windows_.lock_};
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

std::uint64_t Windows::deadline() const {
  return now_ns() + static_cast<std::uint64_t>(std::chrono::nanoseconds(settings_.wait).count());
}

Result<WindowBlock*> Windows::allocate(Size asked, const Preparation& for_resize) {
  if (asked == 0) return Error::invalid(doing, "of no bytes");
  const Size granted = round_up(asked, window_step);
  Request request{.shape = {granted, granule_}};
  {
    Holding holding{lock_};
    if (for_resize.kind != Preparation::Kind::None) {
      request.cuts = likely_cuts(request.shape, for_resize.granules_at_least * granule_);
    }
    if (for_resize.kind == Preparation::Kind::Promise && !request.cuts.empty()) {
      request.unbacked = request.cuts.back();
    }
    const Size elsewhere = whole_far_bytes_ + shared_.far_bytes() + store_.spill_room();
    const Size most = settings_.device_memory > unlimited - elsewhere
                          ? unlimited
                          : settings_.device_memory + elsewhere;
    const Size live = counters_.live_bytes - unbacked_bytes_;
    const Size not_live = most - std::min(most, live);
    if (granted == 0 || granted - request.unbacked > not_live) {
      // However much is given up for it. Programs find out by halving what they ask for.
      holding.unlock();
      return Error{.kind = ErrorKind::OutOfMemory,
                   .doing = doing,
                   .subject = "more than the device has",
                   .asked = asked,
                   .available = could_be_had()};
    }
    if (WindowBlock* const cached = take_cached(granted)) return cached;
  }
  const Result<WindowBlock*> placed = place(request);
  if (placed.ok() || !is_for_want_of_room(placed.error())) return placed;
  return place_under_pressure(request, placed.error());
}

Result<WindowBlock*> Windows::place(Request& request) {
  for (;;) {
    {
      const Holding holding{lock_};
      if (WindowBlock* const block = TRY(try_place(request))) {
        tell_of_change();
        return block;
      }
    }
    TRY(take_missing(request));
  }
}

Result<WindowBlock*> Windows::place_under_pressure(Request& request, Error refusal) {
  const Turn turn{*this};
  const std::uint64_t until = deadline();
  Tried tried;
  tried.add(Tried::NewMemory);
  const auto try_again = [&] {
    Result<WindowBlock*> placed = place(request);
    if (!placed.ok()) refusal = placed.error();
    return placed;
  };
  const auto give_up_cached = [&] {
    tried.add(Tried::CachedBlocks);
    const Holding holding{lock_};
    tidy();
    return give_up_for(request);
  };
  request.look = Look::Hard;
  if (turn.is_mine()) {
    forget_refusals();
    (void)give_up_cached();
    Result<WindowBlock*> placed = try_again();
    const auto lacks_room = [&] { return !placed.ok() && is_for_want_of_room(refusal); };
    const auto wait = [&] {
      tried.add(Tried::PendingWork);
      return wait_for_a_free(until);
    };
    while (lacks_room() && (give_up_cached() || wait())) placed = try_again();
    for (int times = 0; lacks_room() && times < compactions_at_most; ++times) {
      tried.add(Tried::LiveBlocks);
      if (!TRY(make_room(request))) break;
      placed = try_again();
    }
    if (lacks_room() && store_.spills()) {
      request.reach = Lies::Far;
      tried.add(Tried::Elsewhere);
      placed = try_again();
    }
    if (!lacks_room()) return placed;
  }
  {
    const Holding holding{lock_};
    if (unmap_refusal_.driver_code != 0) return unmap_refusal_;
  }
  refusal.subject = tried.words();
  refusal.asked = request.shape.granted;
  refusal.available = request.whole_bytes;
  return refusal;
}

// A block, or nullptr where the request still misses something.
Result<WindowBlock*> Windows::try_place(Request& request) {
  if (WindowBlock* const cached = take_cached(request.shape.granted)) return cached;
  std::optional<SharedChunks::Place> place;
  if (request.shape.has_piece()) {
    place = shared_.find(request.shape.format(), request.look);
    if (!place && request.reach == Lies::Far) {
      place = shared_.find(request.shape.format(Lies::Far), request.look);
    }
    request.needs_spare = !place && !request.spare;
  }
  if (request.needs_spare || request.missing_whole() != 0) return nullptr;
  if (place || !request.shape.has_piece()) return put_up(request, place);
  const Lies spare_lies = cuvmm::lies(request.spare->location(), settings_.device);
  SharedChunk& fresh = shared_.add(request.spare, request.shape.format(spare_lies));
  Result<WindowBlock*> block = put_up(request, shared_.first_slot(fresh));
  // Before its first piece it is nobody's, and after a failure nobody's again.
  if (!block.ok() && fresh.id != 0) remove_if_vacant(fresh);
  return block;
}

// As few and as large chunks as it takes: mapping one costs the same whatever its size.
Result<void> Windows::take_missing(Request& request) {
  if (request.reach == Lies::Far) return take_spilled(request);
  while (request.missing_whole() != 0) {
    Result<ChunkRef> one = store_.take(kind(request.next_whole()), this);
    if (!one.ok()) {
      if (one.error().kind != ErrorKind::OutOfMemory || request.look == Look::Lightly ||
          request.missing_whole() > could_be_had()) {
        return one.error();
      }
      break;
    }
    request.add_whole(std::move(one).value());
  }
  // Not to be had in one: what there is, so that what is missing is known.
  while (request.missing_whole() != 0) {
    request.add_whole(TRY(store_.take(kind(granule_), this)));
  }
  if (request.needs_spare && !request.spare) {
    request.spare = TRY(store_.take(kind(granule_), this));
  }
  return {};
}

// What the device still has, and the rest from elsewhere, in few and large chunks.
Result<void> Windows::take_spilled(Request& request) {
  const auto take = [this](Size size) -> Result<ChunkRef> {
    Result<ChunkRef> near = store_.take(kind(granule_), this);
    if (near.ok() || near.error().kind != ErrorKind::OutOfMemory) return near;
    return store_.take_spilled(size, settings_.exportable);
  };
  for (Size size = request.missing_whole(); request.missing_whole() != 0;) {
    size = std::min(size, request.next_whole());
    Result<ChunkRef> taken = take(size);
    if (taken.ok()) {
      request.add_whole(std::move(taken).value());
    } else if (taken.error().kind != ErrorKind::OutOfMemory || size == granule_) {
      return taken.error();
    } else {
      size = round_up(size / 2, granule_);
    }
  }
  if (request.needs_spare && !request.spare) request.spare = TRY(take(granule_));
  return {};
}

// No more than that, whatever we give up and move.
Size Windows::could_be_had() const {
  const Location here = Location::device(settings_.device);
  const Budget* const budget = store_.budget(here);
  Size free = budget != nullptr ? budget->available() : 0;
  std::size_t free_on_device = 0;
  std::size_t all = 0;
  if (driver_.cuMemGetInfo(&free_on_device, &all) == CUDA_SUCCESS) {
    free = std::min<Size>(free, free_on_device);
  }
  free = std::min(free, settings_.device_memory);
  const Holding holding{lock_};
  const Size held = shared_.physical_bytes() + whole_bytes_;
  return free + store_.counters(here).physical_free + held + unbacked_bytes_ - counters_.live_bytes;
}

WindowBlock* Windows::take_cached(Size granted) {
  for (;;) {
    WindowBlock* block = cached_.find_ready(granted);
    if (block != nullptr) {
      cached_.remove(*block);
      if (is_reusable(*block)) {
        if (block->shared != nullptr) shared_.use(*block->shared);
        hand_out(*block);
        return block;
      }
      take_down(*block);
      continue;
    }
    block = cached_.find_done(granted, order_);
    if (block == nullptr) return nullptr;
    cached_.remove(*block);
    keep(*block);
  }
}

Result<WindowBlock*> Windows::put_up(const Request& request,
                                     const std::optional<SharedChunks::Place>& place) {
  const Shape& shape = request.shape;
  const CUdeviceptr window = TRY(addresses_.take(shape.window_bytes()));
  WindowBlock& block = records_.make();
  block.place(window + (place ? shape.begins_at(place->where) : 0), shape.granted);
  block.state = WindowBlock::State::Live;
  block.piece_behind = WindowBlock::Behind::Nothing;
  block.shared = nullptr;
  if (place) {
    block.shared = place->chunk;
    shared_.put(*place->chunk, block);
  }
  if (shape.whole_bytes() != 0) {
    add_large(block);
    block.whole->unbacked = request.unbacked;
    unbacked_bytes_ += request.unbacked;
  }
  if (const Result<void> mapped = map_all(block, request.whole); !mapped.ok()) {
    if (place) shared_.end_use(*place->chunk);
    unbacked_bytes_ -= request.unbacked;
    take_down(block);
    return mapped.error();
  }
  hand_out(block);
  return &block;
}

Result<void> Windows::map_all(WindowBlock& block, const std::vector<ChunkRef>& whole) {
  const PlacedBlock placed = block.placed(granule_);
  for (const ChunkRef& chunk : whole) {
    TRY(maps_.map(placed.whole() + block.whole->unbacked + block.whole->bytes, chunk));
    block.whole->chunks.push_back(chunk);
    add_bytes_of(*block.whole, chunk);
  }
  if (block.shared != nullptr) {
    TRY(maps_.map(placed.piece_window(), block.shared->chunk));
    block.piece_behind = WindowBlock::Behind::Mapped;
  }
  const Size unbacked = block.whole != nullptr ? block.whole->unbacked : 0;
  if (const Size bytes = placed.window_bytes() - unbacked; bytes != 0) {
    TRY(maps_.allow(placed.window() + unbacked, bytes));
  }
  if (block.shared != nullptr) block.piece_behind = WindowBlock::Behind::Usable;
  return {};
}

// What the store would have to have.
Size Windows::missing_bytes(const Request& request) {
  const bool has_place = !request.shape.has_piece() || request.spare ||
                         shared_.find(request.shape.format(), request.look).has_value();
  return request.missing_whole() + (has_place ? 0 : granule_);
}

// Cached windows, in favour of what the request misses. Whole chunks first: that is quick. Then,
// for a piece, one window after the other, those that nobody has wanted for longest. Whether there
// were any.
bool Windows::give_up_for(const Request& request) {
  const std::size_t before = cached_.ready();
  const Size missing = missing_bytes(request);
  if (missing == 0) {
    give_up_some();
  } else if (give_up_whole_chunks(missing) < missing) {
    while (cached_.oldest_small() != nullptr && missing_bytes(request) > request.missing_whole()) {
      give_up(*cached_.oldest_small());
    }
  }
  return cached_.ready() != before;
}

// There is memory, but no addresses for it, or the driver has too much mapped.
void Windows::give_up_some() {
  constexpr int small_ones = 1024;
  while (cached_.oldest_large() != nullptr) give_up(*cached_.oldest_large());
  for (int left = small_ones; left > 0 && cached_.oldest_small() != nullptr; --left) {
    give_up(*cached_.oldest_small());
  }
}

// Whether some work is done that kept freed blocks from being used.
bool Windows::wait_for_a_free(std::uint64_t until) {
  FreeTicket oldest;
  std::unordered_set<StreamId> streams;
  {
    const Holding holding{lock_};
    const WindowBlock* block = cached_.oldest_pending();
    if (block == nullptr) return false;
    oldest = block->ticket();
    for (; block != nullptr; block = CachedWindows::pending_after(*block)) {
      streams.insert(block->freed_on);
    }
  }
  for (const StreamId stream : streams) order_.look(stream);
  {
    const Holding holding{lock_};
    if (settle_pending() != 0) return true;
  }
  if (!order_.wait(oldest, until)) return false;
  const Holding holding{lock_};
  // None, where another thread has seen it first.
  settle_pending();
  return true;
}

// Whether live pieces were moved such that it is worth while trying again.
Result<bool> Windows::make_room(const Request& request) {
  Size missing = 0;
  {
    const Holding holding{lock_};
    missing = missing_bytes(request);
    if (missing == 0 || settings_.quiet == nullptr) return false;
    if (changes_ < worth_while_from_ && futile_bytes_ <= missing) return false;
    const Size can_be = plan_compaction(missing / granule_).chunks() * granule_;
    if (can_be < missing) {
      // Nothing is gained by stopping the device, nor by planning again before much has changed.
      worth_while_from_ = changes_ + 1 + shared_.all().size() / chunks_a_change;
      futile_bytes_ = missing;
      return false;
    }
  }
  if (!settings_.quiet->begin(deadline())) return false;
  set_compacting(true);
  const Undo end{[this] {
    set_compacting(false);
    settings_.quiet->end();
  }};
  const Size wanted = missing + chunks_to_spare * granule_;
  const Result<Size> freed = compact(wanted, {settings_.quiet->copy_by(), settings_.wait});
  if (freed.ok()) return *freed != 0;
  if (freed.error().kind == ErrorKind::TimedOut) return false;
  return freed.error();
}

void Windows::forget_refusals() {
  const Holding holding{lock_};
  unmap_refusal_ = {};
}

void Windows::set_compacting(bool is_compacting) {
  const Holding holding{lock_};
  is_compacting_ = is_compacting;
  turn_ended_.notify_all();  // who waits for the turn has more time, or less, from now on
}

}  // namespace cuvmm
