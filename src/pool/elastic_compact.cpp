// SPDX-License-Identifier: Apache-2.0
// Compaction: holding the same bytes in fewer chunks. All of it is planned, then copied, then the
// mapping changes as a whole; until then everything is as it was.
#include <algorithm>

#include "pool/compaction_plan.hpp"

namespace cuvmm {
namespace {

constexpr const char* compacting = "compact a pool";
constexpr std::size_t most_groups_tried = 64;  // per granule
// Bytes allocated in a granule are withheld in all granules that share its chunk, so the
// bookkeeping grows with this.
constexpr std::size_t most_sharing = 16;

Size bytes_of(const std::vector<Stretch>& stretches) {
  Size bytes = 0;
  for (const Stretch& stretch : stretches) bytes += stretch.size;
  return bytes;
}

// Both must be sorted by offset.
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

// Granules that share a chunk, or will.
struct Group {
  Size keeper;  // the granule whose chunk they share
  Location location;
  std::size_t members;
  std::vector<Stretch> taken;  // by any of them, as offsets in the granule, sorted

  void join(const std::vector<Stretch>& more) {
    ++members;
    add(more);
  }
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

// Other processes may have a lent chunk mapped, so it keeps its contents and receives no others.
bool ElasticPool::is_lent(Size granule) const {
  const MappedChunk* const mapped = ground_->mapping.find(granule * this->granule());
  return mapped != nullptr && mapped->chunk.exported();
}

bool ElasticPool::reaches_into_lent(Size offset, Size size) const {
  const Granules granules = granules_of({offset, size});
  return std::any_of(granules.begin(), granules.end(), [&](Size at) { return is_lent(at); });
}

// Empties granules that hold only movable allocations, those with the fewest bytes first, if all
// their bytes fit into the free bytes of others.
void ElasticPool::plan_moves(CompactionPlan& plan) const {
  if (movable_.empty()) return;
  RoomInGranules room{bytes_.unallocated(), granule()};
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
    if (bytes_.shared().is_shared(at) || asked_for_.contains(at) || mapped.chunk.exported()) return;
    room.open(at);
    const Size taken = bytes_of(bytes_.unallocated().taken_in(of_granule(at)));
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

// Finds all granules that lose everything they hold, including those that a moved allocation only
// extended into.
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
    if (bytes == bytes_of(bytes_.unallocated().taken_in(of_granule(at)))) plan.emptied.insert(at);
  }
}

// Plans a chunk of its own for each granule in which an allocation was refused withheld bytes. This
// compaction shares that chunk with no other granule. Of the granules that share a chunk, one keeps
// it.
Result<void> ElasticPool::plan_separation(CompactionPlan& plan) {
  const auto goes = [&](Size at) {
    return plan.emptied.contains(at) ||
           std::find(plan.separated.begin(), plan.separated.end(), at) != plan.separated.end();
  };
  for (const Size at : asked_for_) {
    const std::vector<Size>& sharing = bytes_.shared().sharing(at);
    const auto staying = sharing.size() - std::count_if(sharing.begin(), sharing.end(), goes);
    if (staying > 1 && !goes(at)) plan.separated.push_back(at);
  }
  if (plan.separated.empty()) return {};
  auto chunks = take_chunks(plan.separated);
  if (chunks.ok()) {
    plan.own_chunks = std::move(*chunks);
    return {};
  }
  if (chunks.error().kind != ErrorKind::OutOfMemory) return chunks.error();
  plan.separated.clear();  // they continue to share
  return {};
}

// Lets partly used granules share another's chunk if their allocated bytes do not overlap.
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
    if (bytes_.shared().is_shared(at)) {
      std::vector<Size> sharing = bytes_.shared().sharing(at);
      std::erase_if(sharing, [&](Size one) { return plan.emptied.contains(one); });
      if (sharing.front() != at) return;
      const auto keeper = std::find_if_not(sharing.begin(), sharing.end(), [&](Size one) {
        return std::find(plan.separated.begin(), plan.separated.end(), one) != plan.separated.end();
      });
      if (asked_for_.contains(*keeper)) return;
      // Granules to be separated or emptied count as well: until everything has succeeded, their
      // contents are still there.
      const std::vector<Size>& members = bytes_.shared().sharing(at);
      Group group{*keeper, mapped.chunk->location(), members.size(), {}};
      for (const Size member : members) group.add(taken_in(member));
      groups.push_back(std::move(group));
      return;
    }
    const Size bytes = bytes_of(taken_in(at));
    if (bytes < granule() && !asked_for_.contains(at)) alone.push_back({at, bytes});
  });
  std::stable_sort(alone.begin(), alone.end(),
                   [](const Partial& a, const Partial& b) { return a.bytes > b.bytes; });
  for (const Partial& one : alone) {
    const std::vector<Stretch> taken = taken_in(one.granule);
    const Location location = ground_->mapping.find(one.granule * granule())->chunk->location();
    std::size_t tried = 0;
    bool joined = false;
    // Starts with the last groups: the largest pieces have filled the first ones.
    for (auto group = groups.rbegin(); group != groups.rend() && tried < most_groups_tried;
         ++group, ++tried) {
      if (!(group->location == location) || group->members >= most_sharing ||
          overlap(group->taken, taken)) {
        continue;
      }
      group->join(taken);
      plan.joins.push_back({one.granule, group->keeper});
      joined = true;
      break;
    }
    if (!joined) groups.push_back({one.granule, location, 1, taken});
  }
}

// Copies the allocated bytes of granules into other chunks.
Result<void> ElasticPool::copy_into(const Granules& granules, const std::vector<ChunkRef>& chunks) {
  const Driver& driver = places_->driver();
  const auto second = std::make_shared<Ground>(
      TRY(Reservation::create(driver, granules.size() * granule(), granule())));
  MapPlan plan;
  for (std::size_t i = 0; i < granules.size(); ++i) {
    plan.map(second->mapping, i * granule(), chunks[i], places_->access());
  }
  TRY(plan.commit());
  PoolCopies& copier = *TRY(copies());
  return copier.copy(
      [&](CopyBytes& copying) -> Result<void> {
        for (std::size_t i = 0; i < granules.size(); ++i) {
          const Stretch whole = of_granule(granules[i]);
          const Location from = ground_->mapping.find(whole.offset)->chunk->location();
          for (const Stretch& taken : bytes_.unallocated().taken_in(whole)) {
            const Size to = i * granule() + (taken.offset - whole.offset);
            TRY(copying.add(second->mapping.address_of(to),
                            ground_->mapping.address_of(taken.offset), taken.size, from,
                            chunks[i]->location()));
          }
        }
        return {};
      },
      second);
}

// Splits copies at granule boundaries, since neighbouring granules may lie in different places.
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

// Copies on one stream, so that bytes moved into a granule also reach the chunk that it joins.
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

void ElasticPool::carry_out(const CompactionPlan& plan, const std::vector<MappedChunk>& gone) {
  for (const Move& move : plan.moves) {
    bytes_.take({move.to, move.size});
    bytes_.give({move.from, move.size});
    for (auto* const marks : {&movable_, &evictable_}) {
      auto mark = marks->extract(move.from);
      if (mark.empty()) continue;
      mark.key() = move.to;
      marks->insert(std::move(mark));
    }
  }
  forget_granules(gone);
  for (const CompactionPlan::Join& join : plan.joins) bytes_.join(join.granule, join.with);
}

// Does everything that can fail; after an Error everything is as it was.
Result<void> ElasticPool::change_mapping(const CompactionPlan& plan,
                                         const std::vector<MappedChunk>& gone) {
  if (!plan.separated.empty()) TRY(copy_into(plan.separated, plan.own_chunks));
  TRY(copy_for(plan));
  MapPlan change;
  Mapping& mapping = ground_->mapping;
  for (const MappedChunk& chunk : gone) change.unmap(mapping, chunk.offset);
  for (std::size_t i = 0; i < plan.separated.size(); ++i) {
    change.map(mapping, plan.separated[i] * granule(), plan.own_chunks[i], places_->access());
  }
  for (const CompactionPlan::Join& join : plan.joins) {
    change.map(mapping, join.granule * granule(), mapping.find(join.with * granule())->chunk,
               places_->access());
  }
  return change.commit();
}

Result<PoolCompaction> ElasticPool::compact() {
  PoolCompaction done;
  {
    const Holding holding = TRY(lock_when_idle(compacting));
    TRY(check_active(compacting));
    const Size before = physical_;
    Undo release = release_what_was_made();
    CompactionPlan plan{bytes_.unallocated()};
    if (!is_damaged_ && !bytes_.are_any_evicted()) {
      plan_moves(plan);
      TRY(plan_separation(plan));
      plan_sharing(plan);
    }
    if (!plan.is_empty()) {
      Granules leaving{plan.emptied.begin(), plan.emptied.end()};
      leaving.insert(leaving.end(), plan.separated.begin(), plan.separated.end());
      for (const CompactionPlan::Join& join : plan.joins) leaving.push_back(join.granule);
      const std::vector<MappedChunk> gone = chunks_of(leaving);
      if (const Result<void> changed = change_mapping(plan, gone); !changed.ok()) {
        plan.own_chunks.clear();
        recount();
        return changed.error();
      }
      carry_out(plan, gone);
      count_requested();
      done.physical_released = before - std::min(before, physical_);
      done.moves = plan.moves;
    }
    asked_for_.clear();
    release.keep();
  }
  done.cached_released = places_->trim();
  return done;
}

}  // namespace cuvmm
