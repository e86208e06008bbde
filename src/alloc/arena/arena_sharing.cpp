// SPDX-License-Identifier: Apache-2.0
// Moving live memory, so that granules of addresses share chunks and whole chunks become free.
#include "alloc/arena/arena.hpp"
#include "alloc/arena/sharing.hpp"

namespace cuvmm {

using arena::Build;
using arena::ResidencyFilter;
using arena::Sharing;

namespace {

// Chunks to break up larger ones with, in one batch.
constexpr std::size_t most_spares = 256;

}  // namespace

Sharing Arena::sharing() {
  return Sharing{{.layout = *layout_,
                  .mapping = mapping_,
                  .torn = torn_,
                  .access = access_,
                  .order = order_,
                  .where = here_}};
}

Size Arena::in_granules(Size bytes) const {
  return round_up(bytes, layout_->unit()) / layout_->unit();
}

Size Arena::could_share(Size wanted) {
  flush_all();
  const Holding holding{lock_};
  if (is_away_ || has_ended_ || !torn_.empty()) return 0;
  look_at_pending(Taker::Others);
  return sharing().could_gain(in_granules(wanted)) * layout_->unit();
}

Result<Size> Arena::share(Size wanted, const CopyBy& copy) {
  flush_all();
  Size freed = 0;
  while (freed < wanted) {
    // From the store, which may call back, so not under the lock.
    std::vector<ChunkRef> spares;
    while (spares.size() < most_spares) {
      ChunkRef spare = store_.take_free({layout_->unit(), here_, settings_.exportable});
      if (!spare) break;
      spares.push_back(std::move(spare));
    }
    const Holding holding{lock_};
    if (is_away_ || has_ended_) break;
    mend();
    look_at_pending(Taker::Others);
    freed += release_smallest(end_unused_sharing());
    if (freed >= wanted || !torn_.empty()) break;
    const Result<Sharing::Gained> gained =
        sharing().gain(in_granules(wanted - freed), spares, copy);
    note_mapped();
    if (!gained.ok()) {
      if (freed != 0) break;
      return gained.error();
    }
    if (gained->granules == 0) break;
    compacted_granules_ += gained->moves;
    compacted_bytes_ += gained->bytes_moved;
    freed += gained->granules * layout_->unit();
    tell();
  }
  return freed;
}

// Returns how many chunks have become wholly free.
Size Arena::end_unused_sharing() {
  if (layout_->shadow_bytes() == 0) return 0;
  const Sharing::Ended ended = sharing().end_unused();
  looked_after_ = ended.some_pending ? no_look : given_back_;
  note_mapped();
  return ended.chunks;
}

Size Arena::end_unused_sharing_after_frees() {
  return looked_after_ != given_back_ ? end_unused_sharing() : 0;
}

// Returns whether it is worthwhile to try again.
bool Arena::compact_for(Build& build) {
  constexpr int compactions_at_most = 4;  // other threads may take what was gained
  if (settings_.compactor == nullptr || build.reach != ResidencyFilter::Near) return false;
  if (build.compactions++ == compactions_at_most) return false;
  if (build.lacks.empty()) return false;  // addresses are missing, not memory
  return settings_.compactor->make_room(in_granules(build.lacking_bytes()) * layout_->unit());
}

}  // namespace cuvmm
