// SPDX-License-Identifier: Apache-2.0
#include "alloc/arena/arena_state.hpp"
#include "trace/record_event.hpp"

namespace cuvmm::arena {

Result<Block*> ArenaState::lay_in_stripes(const Stripes& stripes, Range& hole,
                                          const std::vector<ChunkRef>& chunks, Size size,
                                          StreamId stream) {
  const Size unit = layout.unit();
  const std::vector<Stripes::Part> parts = stripes.parts();
  const Stretch all{hole.begin(), parts.size() * unit};
  MapPlan plan;
  for (Size i = 0; i < parts.size(); ++i) {
    plan.map(mapping, all.offset + i * unit, chunks[parts[i].chunk], access);
  }
  if (const Result<void> done = plan.commit(); !done.ok()) {
    // What the driver refuses to unmap again.
    for (Size at = all.end(); at > all.offset;) {
      at -= unit;
      if (mapping.find(at) != nullptr) {
        layout.turn_into(layout.cut(hole, {at, unit}), TileKind::Broken);
      }
    }
    note_mapped();
    return done.error();
  }

  Range& shadow = layout.cut(hole, all);
  layout.turn_into(shadow, TileKind::Shadow);
  const Size chosen = spread.pick(stripes.blocks()) * size;
  const Stripes::Part block_at{chosen / unit, {chosen % unit, size}};
  Stretch place;
  Range* first = nullptr;  // with the block's first byte
  std::vector<Range*> ranges(parts.size());
  for (Size i = parts.size(); i-- > 0;) {
    const auto& [chunk, where] = parts[i];
    const Size granule = all.offset + i * unit;
    ranges[i] = &layout.cut(shadow, {granule + where.offset, where.size});
    if (chunk == block_at.chunk && where.contains(block_at.where.offset)) {
      first = ranges[i];
      place = {granule + block_at.where.offset, size};
    }
    CUVMM_TRACE(.event = TraceEvent::Map, .device = static_cast<std::int16_t>(settings.device),
                .detail = 1, .address = layout.address_of(ranges[i]->begin()), .size = where.size,
                .other = chunks[chunk]->handle());
  }
  // They serve the next blocks in random order.
  for (Size left = ranges.size(); left > 0; --left) {
    std::swap(ranges[spread.pick(left)], ranges[left - 1]);
    layout.turn_into(*ranges[left - 1], TileKind::Free);
  }
  spread.note(size);
  stripe_layouts.note(parts);
  Block& block = layout.carve(*first, place, stream);
  layout.join_within(block, all);
  note_mapped();
  tell();
  return &block;
}

}  // namespace cuvmm::arena
