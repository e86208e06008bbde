// SPDX-License-Identifier: Apache-2.0
// The invariant check of a context's windows.
#include <algorithm>
#include <unordered_map>

#include "alloc/windows/window_table.hpp"

namespace cuvmm {
namespace {

using State = WindowBlock::State;
using Behind = WindowBlock::Behind;

std::string of_block(const WindowBlock& block, const char* what) {
  return "windows: the block of " + std::to_string(block.granted()) + " bytes at " +
         std::to_string(block.address()) + " " + what;
}

bool is_live(const WindowBlock& block) {
  return block.state == State::Live || block.state == State::Moving;
}

InvariantViolation violation_of_block(const WindowBlock& block, Size granule) {
  const PlacedBlock placed = block.placed(granule);
  if (block.granted() == 0 ||
      !is_multiple(block.granted(), step_of_block(block.granted(), granule))) {
    return of_block(block, "has no size that is handed out");
  }
  if (block.state == State::Unused) return of_block(block, "is of no use");
  if (block.state == State::Leaving) return {};  // some of it may be gone
  if (placed.has_piece() != (block.shared != nullptr)) return of_block(block, "lacks its piece");
  if ((placed.whole_bytes() != 0) != (block.whole != nullptr)) {
    return of_block(block, "lacks its whole granules");
  }
  if (block.granted() >= smallest_at_granule(granule) && !is_multiple(block.address(), granule)) {
    return of_block(block, "does not begin at a granule");
  }
  if (block.whole != nullptr) {
    Size bytes = 0;
    for (const ChunkRef& chunk : block.whole->chunks) bytes += chunk->size();
    if (bytes != block.whole->bytes ||
        bytes + block.whole->deferred_bytes != placed.whole_bytes()) {
      return of_block(block, "has other chunks than it needs");
    }
  }
  if (block.state == State::Ready && block.shared != nullptr &&
      block.piece_behind != Behind::Usable) {
    return of_block(block, "is kept although it is not mapped");
  }
  return {};
}

}  // namespace

InvariantViolation WindowTable::violation() const {
  if (InvariantViolation found = shared.violation()) return found;
  if (InvariantViolation found = cached.violation()) return found;
  if (InvariantViolation found = addresses.violation()) return found;
  if (InvariantViolation found = violation_of_blocks()) return found;
  return violation_of_addresses();
}

InvariantViolation WindowTable::violation_of_blocks() const {
  for (std::size_t i = 0; i < large.size(); ++i) {
    if (large[i]->whole == nullptr || large[i]->whole->place != i) {
      return of_block(*large[i], "is not at its place among the large ones");
    }
  }
  std::size_t blocks = 0;
  std::unordered_map<State, std::size_t> in_state;
  std::size_t unusable = 0;
  Size live = 0;
  Size whole = 0;
  Size deferred = 0;
  Size whole_far = 0;
  Size chunks_far_bytes = 0;
  Size mapped_bytes = 0;
  InvariantViolation violation;
  for_each_block([&](const WindowBlock& block) {
    if (!violation) violation = violation_of_block(block, granule);
    ++blocks;
    ++in_state[block.state];
    if (is_live(block)) live += block.granted();
    if (is_live(block) && block.shared != nullptr && block.piece_behind != Behind::Usable) {
      ++unusable;
    }
    if (block.whole != nullptr && is_live(block)) {
      deferred += block.whole->deferred_bytes;
    }
    if (block.whole != nullptr) {
      whole += block.whole->bytes;
      whole_far += block.whole->far_bytes;
      for (const ChunkRef& chunk : block.whole->chunks) chunks_far_bytes += far_bytes_of(chunk);
    }
    if (block.piece_behind != Behind::Nothing) mapped_bytes += granule;
  });
  if (violation) return violation;
  if (blocks != records.in_use()) return "windows: more blocks are recorded than there are";
  if (in_state[State::Live] + in_state[State::Moving] != live_blocks || live != live_bytes) {
    return "windows: live blocks are counted wrongly";
  }
  if (in_state[State::Ready] != cached.ready() || in_state[State::Pending] != cached.pending()) {
    return "windows: freed blocks are not those that are kept";
  }
  if (in_state[State::Leaving] != leaving.count()) {
    return "windows: blocks to be unmapped are not those listed";
  }
  if (whole != whole_bytes) return "windows: chunks of single blocks are counted wrongly";
  if (deferred != deferred_bytes) return "windows: bytes without memory are counted wrongly";
  if (whole_far != whole_far_bytes || chunks_far_bytes != whole_far_bytes) {
    return "windows: what lies far is counted wrongly";
  }
  if (mapped_bytes + whole != maps.mapped_bytes()) {
    return "windows: mapped bytes are counted wrongly";
  }
  if (unusable > adrift.size()) return "windows: a live block cannot be used, and is forgotten";

  return {};
}

// The windows and the free addresses tile the reserved addresses.
InvariantViolation WindowTable::violation_of_addresses() const {
  std::vector<MappedRun> runs;
  for_each_block([&](const WindowBlock& block) {
    const PlacedBlock placed = block.placed(granule);
    runs.push_back({placed.window(), placed.window_bytes()});
  });
  addresses.for_each_free([&](CUdeviceptr address, Size bytes) {
    runs.push_back({address, bytes});
  });
  std::sort(runs.begin(), runs.end(),
            [](const MappedRun& a, const MappedRun& b) { return a.address < b.address; });
  Size bytes = 0;
  CUdeviceptr reached = 0;
  for (const MappedRun& run : runs) {
    if (run.address < reached) return "windows: two windows overlap, or one is free";
    if (!addresses.in_one_reservation(run.address, run.bytes)) {
      return "windows: a window is not within what is reserved";
    }
    reached = run.address + run.bytes;
    bytes += run.bytes;
  }
  if (bytes != addresses.reserved_bytes()) {
    return "windows: addresses are neither a window's nor free";
  }
  return {};
}

}  // namespace cuvmm
