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
    // Marks the chunks that the driver refused to unmap again.
    for (Size at = all.end(); at > all.offset;) {
      at -= unit;
      if (mapping.find(at) != nullptr) {
        layout.turn_into(layout.cut(hole, {at, unit}), TileKind::Broken);
      }
    }
    note_mapped();
    return done.error();
  }

  Range& row = layout.cut(hole, all);
  layout.turn_into(row, TileKind::Shadow);
  Range& shadow = layout.join(row);  // with those of the rows beside it
  const std::vector<Stretch> stretches = stripes.stretches();
  std::vector<Range*> ranges(stretches.size());
  for (Size i = ranges.size(); i-- > 0;) {
    ranges[i] = &layout.cut(shadow, {all.offset + stretches[i].offset, stretches[i].size});
  }
  for (Size i = 0; i < parts.size(); ++i) {
    const Size offset = all.offset + i * unit + parts[i].where.offset;
    CUVMM_TRACE(.event = TraceEvent::Map, .device = static_cast<std::int16_t>(settings.device),
                .detail = 1, .address = layout.address_of(offset), .size = parts[i].where.size,
                .other = chunks[parts[i].chunk]->handle());
  }
  for (Range* const range : ranges) layout.turn_into(*range, TileKind::Free);
  Range& first = *ranges[spread.pick(ranges.size())];
  const Size place = first.begin() + spread.pick(first.size() / size) * size;
  spread.note(size);
  stripe_rows.add(all, stripes);
  blocks_a_stripe = stripes.blocks_a_stripe();
  Block& block = layout.carve(first, {place, size}, stream);
  // Before and after the row, memory may be free already.
  layout.join_within(block, all);
  note_mapped();
  tell();
  return &block;
}

}  // namespace cuvmm::arena
