// SPDX-License-Identifier: Apache-2.0
#include "order/memory_books.hpp"

#include <algorithm>

#include "order/report.hpp"

namespace cuvmm::order {

std::uint32_t Block::pattern_of(std::size_t row) const {
  const auto zone =
      std::find_if(zones.begin(), zones.end(), [&](const Zone& one) { return row < one.end; });
  return zone->pattern;
}

// Checks for reuse along events where the pool's attributes forbid it. Opportunistic reuse cannot
// be told apart (measured: a pool without opportunistic reuse still knows some work to be
// complete).
void MemoryBooks::check_reuse(const Model& model, const Block& block, Model::Stream stream,
                              const Freed& freed) const {
  if (block.pool == Block::blocking || freed.pool != block.pool) return;
  if (freed.stream == stream || freed.stream == on_no_stream) return;
  const PoolRules& pool = rules[static_cast<std::size_t>(block.pool)];
  if (pool.may_depend || is_ignored("forbidden reuse")) return;
  // Only an event can order a non-blocking stream with another. It is open whether the attribute
  // also covers the rule of the legacy stream.
  const auto is_non_blocking = [&](Model::Stream one) {
    return one != on_no_stream && model.kind_of(one) == StreamKind::NonBlocking;
  };
  const bool needs_event = is_non_blocking(stream) || is_non_blocking(freed.stream);
  if (!pool.follows_events && needs_event && model.is_surely_blocked(freed.after)) {
    violation("forbidden reuse",
              "%#llx, %zu bytes, overlaps block %d, freed on another stream behind work that is "
              "blocked: the pool forbids reuse along events",
              block.address, block.size, freed.number);
  }
}

MemoryBooks::Grant MemoryBooks::check_grant(const Model& model, const Block& block,
                                            Model::Stream stream, const Past& before) {
  const CUdeviceptr begin = block.address;
  const CUdeviceptr end = block.address + block.size;
  for (const Block& other : live) {
    if (begin < other.address + other.size && other.address < end) {
      violation("two owners", "%#llx, %zu bytes, overlaps block %d, which lives", begin, block.size,
                other.number);
    }
  }
  const bool may_depend =
      block.pool != Block::blocking && rules[static_cast<std::size_t>(block.pool)].may_depend;
  Grant grant;
  for (const Freed& freed : freed_) {
    if (freed.end <= begin || end <= freed.begin) continue;
    grant.is_reuse = true;
    check_reuse(model, block, stream, freed);
    if (!model.is_surely_blocked(freed.after)) continue;
    grant.is_behind_blocked_work = true;
    const Nodes users = freed.after.surely & ~model.marks();
    const bool possibly_behind = (users & ~before.possibly).none();
    if (may_depend || model.is_behind(before, users)) {
      grant.also |= freed.after;  // the pool may have made the allocation wait
    } else if (!possibly_behind && !is_ignored("granted too early")) {
      violation("granted too early",
                "%#llx, %zu bytes, overlaps block %d: the work that its free is behind is blocked, "
                "and the allocation does not come after it",
                begin, block.size, freed.number);
    }
  }
  // The pool may also have made it wait for other frees.
  if (may_depend) grant.also.possibly |= all_frees_.possibly;
  return grant;
}

Block& MemoryBooks::add(Block block) {
  constexpr std::size_t unit = 512;  // the driver rounds sizes up; what is left over is not free
  const CUdeviceptr begin = block.address;
  const CUdeviceptr end = block.address + (block.size + unit - 1) / unit * unit;
  std::vector<Freed> rest;
  for (const Freed& freed : freed_) {
    if (freed.begin < begin) {
      rest.push_back(freed);
      rest.back().end = std::min(freed.end, begin);
    }
    if (freed.end > end) {
      rest.push_back(freed);
      rest.back().begin = std::max(freed.begin, end);
    }
  }
  freed_ = std::move(rest);
  block.number = ++last_number_;
  live_bytes_ += block.size;
  return live.emplace_back(std::move(block));
}

std::optional<MemoryBooks::Temptation> MemoryBooks::tempt(const Model& model, Chance& chance,
                                                          const Past* behind) const {
  if (freed_.empty()) return std::nullopt;
  const std::size_t first = chance.below(freed_.size());
  for (std::size_t i = 0; i < freed_.size(); ++i) {
    const Freed& freed = freed_[(first + i) % freed_.size()];
    if (freed.pool == Block::blocking || freed.end - freed.begin < row_bytes) continue;
    if (!model.is_surely_blocked(freed.after)) continue;
    if (behind != nullptr && (freed.after.surely & ~behind->possibly).any()) continue;
    return Temptation{freed.end - freed.begin, freed.pool};
  }
  return std::nullopt;
}

void MemoryBooks::freed(const Block& block, const Past& after, Model::Stream stream) {
  freed_.push_back(
      {block.address, block.address + block.size, block.pool, block.number, after, stream});
  all_frees_ |= after;
  remove(block);
}

void MemoryBooks::remove(const Block& block) {
  live_bytes_ -= block.size;
  live.remove_if([&](const Block& one) { return &one == &block; });
}

}  // namespace cuvmm::order
