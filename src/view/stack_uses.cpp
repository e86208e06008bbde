// SPDX-License-Identifier: Apache-2.0
#include "view/stack_uses.hpp"

#include <algorithm>
#include <map>
#include <tuple>

namespace cuvmm::view {
namespace {

constexpr Size thousandth = 1000;

void add_use(const StackUse& use, StackUse& sum) {
  sum.samples += use.samples;
  sum.allocated += use.allocated;
  sum.at_peak += use.at_peak;
  sum.at_end += use.at_end;
}

}  // namespace

void StackUses::add(const TraceRecord& record) {
  walk_.add(record);
  if (record.event == TraceEvent::SampledAs) known_later_[record.address] = record.detail;
  if (record.event != TraceEvent::Sampled || walk_.live().find(record.address) == nullptr) return;
  live_[record.address] = {record.detail, record.other};
  StackUse& use = uses_[record.detail];
  use.stack = record.detail;
  ++use.samples;
  use.allocated += record.other;
  use.at_end += record.other;
  now_ += record.other;
  changed_.insert(record.detail);
}

void StackUses::ended(const LiveBlock& block, std::uint64_t) {
  const auto found = live_.find(block.address);
  if (found == live_.end()) return;
  keep_peak();
  changed_.insert(found->second.stack);
  uses_[found->second.stack].at_end -= found->second.stands_for;
  now_ -= found->second.stands_for;
  live_.erase(found);
}

void StackUses::keep_peak() {
  if (now_ <= peak_) return;
  peak_ = now_;
  for (const std::uint32_t stack : changed_) uses_[stack].at_peak = uses_[stack].at_end;
  changed_.clear();
}

std::unordered_map<std::uint32_t, StackUse> StackUses::by_stack() {
  keep_peak();
  std::unordered_map<std::uint32_t, StackUse> merged;
  for (const auto& [number, use] : uses_) {
    const auto later = known_later_.find(number);
    const std::uint32_t stack = later == known_later_.end() ? number : later->second;
    StackUse& sum = merged[stack];
    sum.stack = stack;
    add_use(use, sum);
  }
  return merged;
}

std::vector<StackUse> StackUses::sorted(StackNames& names) {
  std::map<std::vector<std::string>, StackUse> by_names;
  for (const auto& [stack, use] : by_stack()) {
    const auto [same, is_new] = by_names.try_emplace(names.names_of(stack), use);
    if (is_new) continue;
    add_use(use, same->second);
    same->second.stack = std::min(same->second.stack, stack);
  }
  std::vector<StackUse> sorted;
  sorted.reserve(by_names.size());
  for (const auto& [words, use] : by_names) sorted.push_back(use);
  std::sort(sorted.begin(), sorted.end(), [](const StackUse& a, const StackUse& b) {
    return std::tuple{b.at_peak, b.at_end, b.allocated, a.stack} <
           std::tuple{a.at_peak, a.at_end, a.allocated, b.stack};
  });
  return sorted;
}

std::vector<FlameFrame> StackUses::flames(StackNames& names) {
  std::map<std::uint32_t, FlameFrame> frames;  // callers have the smaller numbers
  StackUse all;
  for (const auto& [leaf, use] : by_stack()) {
    all.allocated += use.allocated;
    all.at_peak += use.at_peak;
    all.at_end += use.at_end;
    for (std::uint32_t stack = leaf;; stack = names.caller_of(stack)) {
      FlameFrame& frame = frames[stack];
      frame.allocated += use.allocated;
      frame.at_peak += use.at_peak;
      frame.at_end += use.at_end;
      if (names.caller_of(stack) == 0) break;
    }
  }
  std::unordered_map<std::uint32_t, int> places;
  std::map<std::pair<int, std::string>, int> by_name;  // calls from several lines of one function
  std::vector<FlameFrame> seen;
  for (auto& [stack, frame] : frames) {
    const bool is_visible = frame.allocated > all.allocated / thousandth ||
                            frame.at_peak > all.at_peak / thousandth ||
                            frame.at_end > all.at_end / thousandth;
    if (!is_visible) continue;
    const std::uint32_t caller = names.caller_of(stack);
    if (caller != 0) frame.caller = places[caller];  // visible too, since it is at least as large
    frame.name = names.name_of(stack);
    const auto [place, is_new] =
        by_name.try_emplace({frame.caller, frame.name}, static_cast<int>(seen.size()));
    places[stack] = place->second;
    if (is_new) {
      seen.push_back(std::move(frame));
      continue;
    }
    FlameFrame& same = seen[static_cast<std::size_t>(place->second)];
    same.allocated += frame.allocated;
    same.at_peak += frame.at_peak;
    same.at_end += frame.at_end;
  }
  return seen;
}

}  // namespace cuvmm::view
