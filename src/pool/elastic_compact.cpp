// SPDX-License-Identifier: Apache-2.0
// Holding the same bytes in fewer chunks. All of it is planned, then copied, then the mapping is
// changed as a whole; until that has happened everything is as it was.
#include <algorithm>

#include "pool/compaction_plan.hpp"

namespace cuvmm {
namespace {

constexpr std::size_t most_groups_tried = 64;  // for one granule

Size bytes_of(const std::vector<Stretch>& stretches) {
  Size bytes = 0;
  for (const Stretch& stretch : stretches) bytes += stretch.size;
  return bytes;
}

// Both upwards.
bool overlap(const std::vector<Stretch>& a, const std::vector<Stretch>& b) {
  auto left = a.begin();
  auto right = b.begin();
  while (left != a.end() && right != b.end()) {
    if (left->overlaps(*right)) return true;
    (left->end() <= right->end()) ? ++left : ++right;
  }
  return false;
}

// The first allocation that ends beyond `offset`.
std::map<Size, Size>::const_iterator first_reaching(const std::map<Size, Size>& allocations,
                                                    Size offset) {
  const auto above = allocations.upper_bound(offset);
  if (above == allocations.begin()) return above;
  const auto below = std::prev(above);
  return below->first + below->second > offset ? below : above;
}

// Granules that have, or will have, one chunk.
struct Group {
  Size first;  // whose chunk it is
  Location location;
  std::vector<Stretch> taken;  // by any of them, as offsets in the granule, upwards

  void add(const std::vector<Stretch>& more) {
    const auto middle = static_cast<std::ptrdiff_t>(taken.size());
    taken.insert(taken.end(), more.begin(), more.end());
    std::inplace_merge(taken.begin(), taken.begin() + middle, taken.end(),
                       [](const Stretch& a, const Stretch& b) { return a.offset < b.offset; });
  }
};

struct Partial {
  Size granule;
  Size bytes;
};

}  // namespace

// Others may have it mapped: it keeps its contents, and nothing else comes to lie in it.
bool ElasticPool::is_lent(Size granule) const {
  const MappedChunk* const mapped = ground_->mapping.find(granule * this->granule());
  return mapped != nullptr && mapped->chunk.exported();
}

bool ElasticPool::reaches_into_lent(Size offset, Size size) const {
  const Granules granules = granules_of({offset, size});
  return std::any_of(granules.begin(), granules.end(), [&](Size at) { return is_lent(at); });
}

// Granules that hold nothing but movable allocations are emptied, those with the fewest bytes
// first, where all of what they hold fits into the free bytes of others.
void ElasticPool::plan_moves(CompactionPlan& plan) const {
  if (movable_.empty()) return;
  RoomInGranules room{free_, granule()};
  std::vector<Partial> candidates;
  std::map<Size, Size> movable_in;  // bytes by granule
  for (const auto& [offset, size] : movable_) {
    for (const Size at : granules_of({offset, size})) {
      const Stretch whole = of_granule(at);
      movable_in[at] += std::min(offset + size, whole.end()) - std::max(offset, whole.offset);
    }
  }
  ground_->mapping.for_each([&](const MappedChunk& mapped) {
    const Size at = mapped.offset / granule();
    if (shared_.is_shared(at) || mapped.chunk.exported()) return;
    room.open(at);
    const Size taken = bytes_of(free_.taken_in(of_granule(at)));
    const auto movable = movable_in.find(at);
    if (movable != movable_in.end() && movable->second == taken && taken < granule()) {
      candidates.push_back({at, taken});
    }
  });
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Partial& a, const Partial& b) { return a.bytes < b.bytes; });

  std::set<Size> moved;  // by their old offsets
  for (const Partial& candidate : candidates) {
    const Size at = candidate.granule;
    if (plan.receives.contains(at)) continue;
    room.close(at);
    std::vector<Move> moves;
    bool fits = true;
    for (auto one = first_reaching(movable_, of_granule(at).offset);
         fits && one != movable_.end() && one->first < of_granule(at).end(); ++one) {
      if (moved.contains(one->first)) continue;
      const std::optional<Size> to =
          reaches_into_lent(one->first, one->second) ? std::nullopt : room.take(one->second);
      fits = to.has_value();
      if (fits) moves.push_back({one->first, *to, one->second});
    }
    if (!fits) {
      for (const Move& move : moves) room.give({move.to, move.size});
      room.open(at);
      continue;
    }
    for (const Move& move : moves) {
      plan.after.take({move.to, move.size});
      moved.insert(move.from);
      plan.moves.push_back(move);
      for (const Size receiver : granules_of({move.to, move.size})) plan.receives.insert(receiver);
    }
  }
  find_emptied(plan);
}

// Granules, those that a moved allocation only reached into among them, that lose all they hold.
void ElasticPool::find_emptied(CompactionPlan& plan) const {
  std::map<Size, Size> leaving;  // bytes by granule
  for (const Move& move : plan.moves) {
    for (const Size at : granules_of({move.from, move.size})) {
      const Stretch whole = of_granule(at);
      leaving[at] +=
          std::min(move.from + move.size, whole.end()) - std::max(move.from, whole.offset);
    }
  }
  for (const auto& [at, bytes] : leaving) {
    if (plan.receives.contains(at)) continue;
    if (bytes == bytes_of(free_.taken_in(of_granule(at)))) plan.emptied.insert(at);
  }
}

// Granules that are only partly taken get the chunk of another where no byte of either is in the
// other's way.
void ElasticPool::plan_sharing(CompactionPlan& plan) const {
  std::vector<Group> groups;
  std::vector<Partial> alone;
  const auto taken_in = [&](Size at) {
    std::vector<Stretch> taken = plan.after.taken_in(of_granule(at));
    for (Stretch& stretch : taken) stretch.offset -= at * granule();
    return taken;
  };
  ground_->mapping.for_each([&](const MappedChunk& mapped) {
    const Size at = mapped.offset / granule();
    if (plan.emptied.contains(at) || mapped.chunk.exported()) return;
    std::vector<Size> sharing = shared_.sharing(at);
    std::erase_if(sharing, [&](Size one) { return plan.emptied.contains(one); });
    if (shared_.is_shared(at)) {
      if (sharing.front() != at) return;
      Group group{at, mapped.chunk->location(), {}};
      for (const Size member : sharing) group.add(taken_in(member));
      groups.push_back(std::move(group));
      return;
    }
    const Size bytes = bytes_of(taken_in(at));
    if (bytes < granule()) alone.push_back({at, bytes});
  });
  std::stable_sort(alone.begin(), alone.end(),
                   [](const Partial& a, const Partial& b) { return a.bytes > b.bytes; });
  for (const Partial& one : alone) {
    const std::vector<Stretch> taken = taken_in(one.granule);
    const Location location = ground_->mapping.find(one.granule * granule())->chunk->location();
    std::size_t tried = 0;
    bool joined = false;
    // The last groups first: the largest pieces have filled the first ones.
    for (auto group = groups.rbegin(); group != groups.rend() && tried < most_groups_tried;
         ++group, ++tried) {
      if (!(group->location == location) || overlap(group->taken, taken)) continue;
      group->add(taken);
      plan.joins.push_back({one.granule, group->first});
      joined = true;
      break;
    }
    if (!joined) groups.push_back({one.granule, location, taken});
  }
}

// Copies end at granules' seams, since what lies behind them may lie in different places.
Result<void> ElasticPool::add_copy(CopyBytes& copying, Size to, Size from, Size size) const {
  const Mapping& mapping = ground_->mapping;
  while (size != 0) {
    const Size piece = std::min({size, granule() - to % granule(), granule() - from % granule()});
    TRY(copying.add(mapping.address_of(to), mapping.address_of(from), piece,
                    mapping.find(from)->chunk->location(), mapping.find(to)->chunk->location()));
    to += piece;
    from += piece;
    size -= piece;
  }
  return {};
}

// On one stream, so that what is moved into a granule goes with it to the chunk that it joins.
Result<void> ElasticPool::copy_for(const CompactionPlan& plan) {
  PoolCopies& copier = *TRY(copies());
  return copier.copy(
      [&](CopyBytes& copying) -> Result<void> {
        for (const Move& move : plan.moves) TRY(add_copy(copying, move.to, move.from, move.size));
        for (const CompactionPlan::Join& join : plan.joins) {
          for (const Stretch& taken : plan.after.taken_in(of_granule(join.granule))) {
            const Size in_granule = taken.offset - join.granule * granule();
            TRY(add_copy(copying, join.with * granule() + in_granule, taken.offset, taken.size));
          }
        }
        return {};
      },
      ground_);
}

Size ElasticPool::carry_out(const CompactionPlan& plan, const std::vector<MappedChunk>& gone) {
  for (const Move& move : plan.moves) {
    free_.take({move.to, move.size});
    free_.give({move.from, move.size});
    for (auto* const marks : {&movable_, &evictable_}) {
      auto mark = marks->extract(move.from);
      if (mark.empty()) continue;
      mark.key() = move.to;
      marks->insert(std::move(mark));
    }
  }
  const Size released = forget_granules(gone);
  for (const CompactionPlan::Join& join : plan.joins) shared_.join(join.granule, join.with);
  return released;
}

Result<PoolCompaction> ElasticPool::compact() {
  constexpr const char* doing = "compact a pool";
  TRY(fences_->wait());
  PoolCompaction done;
  {
    const Holding holding{lock_};
    TRY(check_active(doing));
    CompactionPlan plan{free_};
    if (!is_damaged_) {
      plan_moves(plan);
      plan_sharing(plan);
    }
    if (!plan.is_empty()) {
      TRY(copy_for(plan));
      Granules leaving{plan.emptied.begin(), plan.emptied.end()};
      for (const CompactionPlan::Join& join : plan.joins) leaving.push_back(join.granule);
      const std::vector<MappedChunk> gone = chunks_of(leaving);
      MapPlan change;
      Mapping& mapping = ground_->mapping;
      for (const MappedChunk& chunk : gone) change.unmap(mapping, chunk.offset);
      for (const CompactionPlan::Join& join : plan.joins) {
        change.map(mapping, join.granule * granule(), mapping.find(join.with * granule())->chunk,
                   places_->access());
      }
      if (const Result<void> changed = change.commit(); !changed.ok()) {
        recount();
        return changed.error();
      }
      done.physical_released = carry_out(plan, gone);
      done.moves = plan.moves;
    }
  }
  done.cached_released = places_->trim();
  return done;
}

}  // namespace cuvmm
