// SPDX-License-Identifier: Apache-2.0
#include "spill/migration.hpp"

#include <algorithm>
#include <utility>

#include "alloc/near_chunk.hpp"

namespace cuvmm {
namespace {

// Copied together and mapped in one plan.
constexpr Size exchanged_at_once = 256 * MiB;
constexpr int tries = 3;

}  // namespace

Migration::Migration(const Driver& driver, DeviceMemory& device, EvictionSet evicted)
    : driver_(driver),
      device_(device),
      evicted_(std::move(evicted)),
      stream_(std::make_shared<CopyStream>(driver)) {}

Migration::~Migration() {
  for (Group& group : broken_) group.leaving.front().of->count_as_restored(group.leaving);
  for (EvictionSource* const owner : evicted_.owners) owner->end_eviction();
}

Migration::Moved Migration::make() {
  auto& leaving = evicted_.chunks;
  const auto lies_far = [&](const EvictedChunk& one) {
    return residency(one.chunk->location(), device_.ordinal()) == Residency::Far;
  };
  std::sort(leaving.begin(), leaving.end(), [&](const EvictedChunk& a, const EvictedChunk& b) {
    return std::pair(lies_far(a), a.address) < std::pair(lies_far(b), b.address);
  });
  const auto first_far = std::find_if(leaving.begin(), leaving.end(), lies_far);
  const auto near = static_cast<std::size_t>(first_far - leaving.begin());
  const std::span<EvictedChunk> all{leaving};
  ChunkStore& store = device_.store();
  Moved moved;
  moved.out = move_all(all.first(near), [&](const EvictedChunk& one) {
    return store.take_spilled(one.size, one.exportable);
  });
  moved.in = move_all(all.subspan(near), [&](const EvictedChunk& one) {
    if (one.properties != nullptr) return create_near(driver_, &device_, one.size, *one.properties);
    return store.take({one.size, device_.location(), device_.exportable()});
  });
  return moved;
}

Size Migration::move_all(std::span<EvictedChunk> some, const Take& take) {
  Size moved = 0;
  while (!some.empty() && !is_broken()) {
    std::vector<ChunkRef> fresh;
    Size size = 0;
    for (const EvictedChunk& one : some) {
      if (one.of != some.front().of || (size != 0 && size + one.size > exchanged_at_once)) break;
      Result<ChunkRef> taken = take(one);
      if (!taken.ok()) break;
      fresh.push_back(std::move(taken).value());
      size += one.size;
    }
    const std::size_t count = fresh.size();
    if (count == 0) break;  // no memory at the destination
    const Size done = move(some.first(count), std::move(fresh));
    if (done == 0) break;
    moved += done;
    some = some.subspan(count);
  }
  return moved;
}

Size Migration::move(std::span<EvictedChunk> some, std::vector<ChunkRef> fresh) {
  Group group{.leaving = some, .before = {}, .after = std::move(fresh)};
  for (const EvictedChunk& one : some) group.before.push_back(one.chunk);
  if (!copy(group)) return 0;
  if (!swap(group)) {
    broken_.push_back(std::move(group));
    return 0;
  }
  Size moved = 0;
  for (std::size_t i = 0; i < some.size(); ++i) {
    if (some[i].chunk->handle() == group.after[i]->handle()) moved += some[i].size;
    some[i].chunk = {};
  }
  return moved;
}

bool Migration::copy(const Group& group) {
  auto place = ScratchMapping::of(driver_, device_.granule(), group.after, device_.ordinal());
  if (!place.ok()) return false;
  CopyBytes copies{driver_, stream_->handle()};
  const auto copy_all = [&]() -> Result<void> {
    CUdeviceptr to = (*place)->addresses.address();
    for (std::size_t i = 0; i < group.leaving.size(); ++i) {
      const EvictedChunk& one = group.leaving[i];
      TRY(copies.add(to, one.address, one.size, group.before[i]->location(),
                     group.after[i]->location()));
      to += one.size;
    }
    return copies.finish();
  };
  const bool copied = copy_all().ok();
  if (!copied && !copies.is_over()) stream_->keep_until_idle(*place);
  return copied;
}

// Both chunks of each pair have the contents by now, so it does not matter which one is mapped.
bool Migration::swap(Group& group) {
  for (std::size_t i = 0; i < group.leaving.size(); ++i) {
    EvictedChunk& one = group.leaving[i];
    if (one.of->take_out(one).ok()) one.chunk = group.after[i];
  }
  return put_back_either(group);
}

bool Migration::put_back(const Group& group) {
  for (int i = 0; i < tries; ++i) {
    if (group.leaving.front().of->put_back(group.leaving).ok()) return true;
  }
  return false;
}

bool Migration::put_back_either(Group& group) {
  if (put_back(group)) return true;
  for (std::size_t i = 0; i < group.leaving.size(); ++i) {
    EvictedChunk& one = group.leaving[i];
    if (one.of->take_out(one).ok()) one.chunk = group.before[i];
  }
  return put_back(group);
}

bool Migration::restore() {
  while (is_broken()) {
    if (!put_back_either(broken_.back())) return false;
    for (EvictedChunk& one : broken_.back().leaving) one.chunk = {};
    broken_.pop_back();
  }
  return true;
}

}  // namespace cuvmm
