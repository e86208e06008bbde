// SPDX-License-Identifier: Apache-2.0
// Which call stacks allocated how much device memory, estimated from a trace's samples.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "view/memory_walk.hpp"
#include "view/stack_names.hpp"

namespace cuvmm::view {

struct StackUse {
  std::uint32_t stack = 0;
  std::uint64_t samples = 0;
  Size allocated = 0;  // in all
  Size at_peak = 0;    // live when the sampled bytes were at their peak
  Size at_end = 0;     // never freed
};

// One frame of a flame graph: its sums include those of the frames that it called.
struct FlameFrame {
  std::string name;
  int caller = -1;  // index; -1: outermost
  Size allocated = 0;
  Size at_peak = 0;
  Size at_end = 0;
};

// Add records in the order of time.
class StackUses final : private MemorySink {
 public:
  // For one device, or for all together.
  explicit StackUses(std::optional<std::int16_t> device = {}) : walk_(*this, device) {}
  StackUses(const StackUses&) = delete;
  StackUses& operator=(const StackUses&) = delete;

  void add(const TraceRecord& record);

  bool is_empty() const { return uses_.empty(); }
  // By what they hold at the peak, most first. Merges stacks whose places have the same names,
  // since compiled code may call from several places in one function.
  std::vector<StackUse> sorted(StackNames& names);
  // Callers come before their callees. Leaves out frames too small to see.
  std::vector<FlameFrame> flames(StackNames& names);

 private:
  struct Sample {
    std::uint32_t stack = 0;
    Size stands_for = 0;
  };
  void ended(const LiveBlock& block, std::uint64_t time) override;
  void keep_peak();
  // With the samples whose stack became known later.
  std::unordered_map<std::uint32_t, StackUse> by_stack();

  MemoryWalk walk_;
  std::unordered_map<std::uint64_t, Sample> live_;                // by address
  std::unordered_map<std::uint32_t, StackUse> uses_;              // `at_end` is the current use
  std::unordered_map<std::uint64_t, std::uint32_t> known_later_;  // stacks, by number in samples
  Size now_ = 0;
  Size peak_ = 0;                              // the last one that is kept in `at_peak`
  std::unordered_set<std::uint32_t> changed_;  // stacks whose use changed since that peak
};

}  // namespace cuvmm::view
