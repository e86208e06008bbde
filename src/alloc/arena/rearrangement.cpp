// SPDX-License-Identifier: Apache-2.0
#include "alloc/arena/rearrangement.hpp"

#include <algorithm>

#include "trace/record_event.hpp"

namespace cuvmm::arena {
namespace {

template <class Steps>
void put_last_first(Steps& steps) {
  std::sort(steps.begin(), steps.end(),
            [](const auto& a, const auto& b) { return a.where().offset > b.where().offset; });
}

// Adjacent stretches are recorded as one event.
class RunOfChunks {
 public:
  RunOfChunks(TraceEvent event, const Layout& layout, int device)
      : event_(event), layout_(layout), device_(device) {}
  ~RunOfChunks() { tell(); }
  RunOfChunks(const RunOfChunks&) = delete;
  RunOfChunks& operator=(const RunOfChunks&) = delete;

  void add(const Stretch& where) {  // downwards
    if (count_ == 0 || where.end() != run_.offset) {
      tell();
      run_ = {where.offset, 0};
      count_ = 0;
    }
    run_ = {where.offset, run_.size + where.size};
    ++count_;
  }

 private:
  void tell() const {
    if (count_ == 0) return;
    CUVMM_TRACE(.event = event_, .device = static_cast<std::int16_t>(device_), .detail = count_,
                .address = layout_.address_of(run_.offset), .size = run_.size);
  }

  const TraceEvent event_;
  const Layout& layout_;
  const int device_;
  Stretch run_;
  std::uint32_t count_ = 0;
};

}  // namespace

void Rearrangement::bring(const GapFill::Spot& to, ChunkRef chunk) {
  coming_.push_back({to.hole, to.offset, std::move(chunk), nowhere});
}

void Rearrangement::move(const GapFill::Spot& to, Range& from, const MappedChunk& chunk) {
  coming_.push_back({to.hole, to.offset, chunk.chunk, chunk.offset});
  going_.push_back({&from, chunk.where(), true});
}

void Rearrangement::release(Range& from, const MappedChunk& chunk) {
  going_.push_back({&from, chunk.where(), false});
}

Result<void> Rearrangement::commit() {
  put_last_first(coming_);
  put_last_first(going_);
  MapPlan plan;
  for (auto going = going_.rbegin(); going != going_.rend(); ++going) {
    plan.unmap(mapping_, going->stretch.offset);
  }
  for (auto coming = coming_.rbegin(); coming != coming_.rend(); ++coming) {
    plan.map(mapping_, coming->offset, coming->chunk, access_);
  }
  cut_tiles();
  const Result<void> done = plan.commit();
  follow_all(is_for_a_block_ && done.ok() ? Joining::Later : Joining::Now);
  if (!done.ok()) return done;
  for (const Going& going : going_) {
    Size& sum = going.moves ? moved_bytes_ : gone_bytes_;
    sum += going.stretch.size;
    if (going.moves) ++moved_count_;
  }
  if (trace_is_on()) record_events();
  return {};
}

void Rearrangement::cut_tiles() {
  for (Going& going : going_) going.range = &layout_.cut(*going.range, going.stretch);
  for (Coming& coming : coming_) coming.hole = &layout_.cut(*coming.hole, coming.where());
}

void Rearrangement::follow(Range& tile) {
  const MappedChunk* const mapped = mapping_.find(tile.begin());
  if (mapped == nullptr) return layout_.turn_into(tile, TileKind::Hole);
  layout_.turn_into(tile, mapped->access == access_ ? TileKind::Free : TileKind::Broken,
                    residency(mapped->chunk->location(), device_));
}

void Rearrangement::follow_all(Joining joining) {
  for (const Going& going : going_) follow(*going.range);
  for (const Coming& coming : coming_) follow(*coming.hole);
  // Joining may end the record of the range above, or of the tile itself, so go downwards.
  auto going = going_.begin();
  for (const Coming& coming : coming_) {
    for (; going != going_.end() && going->stretch.offset > coming.offset; ++going) {
      layout_.join(*going->range);
    }
    lowest_ = joining == Joining::Later ? coming.hole : &layout_.join(*coming.hole);
  }
  for (; going != going_.end(); ++going) layout_.join(*going->range);
}

void Rearrangement::record_events() const {
  RunOfChunks mapped{TraceEvent::Map, layout_, device_};
  RunOfChunks unmapped{TraceEvent::Unmap, layout_, device_};
  for (const Coming& coming : coming_) {
    if (coming.from == nowhere) {
      mapped.add(coming.where());
    } else {
      CUVMM_TRACE(.event = TraceEvent::Move, .device = static_cast<std::int16_t>(device_),
                  .detail = 1, .address = layout_.address_of(coming.offset),
                  .size = coming.chunk->size(), .other = layout_.address_of(coming.from));
    }
  }
  for (const Going& going : going_) {
    if (!going.moves) unmapped.add(going.stretch);
  }
}

}  // namespace cuvmm::arena
