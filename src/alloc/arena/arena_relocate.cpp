// SPDX-License-Identifier: Apache-2.0
// Live memory of an arena goes to other chunks, under the same addresses.
#include <algorithm>

#include "alloc/arena/arena.hpp"
#include "alloc/relocation.hpp"

namespace cuvmm {

using arena::Range;
using arena::Tile;
using arena::TileKind;

namespace {

// So much is mapped a second time at once.
constexpr Size bytes_at_once = 256 * MiB;

struct Pinned {
  Stretch where;
  const char* why;
};

const char* why_it_stays(const MappedChunk& mapped, const std::vector<Pinned>& pinned) {
  if (mapped.chunk.exported()) return "another process holds it";
  for (const Pinned& block : pinned) {
    if (block.where.overlaps(mapped.where())) return block.why;
  }
  return nullptr;
}

}  // namespace

void Arena::relocate(Relocation& relocation) {
  flush_all();
  const Holding holding{lock_};
  mend();
  look_at_pending();
  const bool moves = relocation.what == Relocation::Do::Move;
  if (moves && relocation.free == Relocation::Free::IsLetGo) let_go_of_all(relocation.wants);
  std::vector<MappedChunk> run;
  Size bytes = 0;
  const auto end_run = [&] {
    if (!run.empty()) relocate_run(run, relocation);
    run.clear();
    bytes = 0;
  };
  std::vector<Pinned> pinned;
  for (const Tile* tile = layout_->first(); tile != nullptr; tile = tile->after) {
    if (tile->kind != TileKind::Block) continue;
    const char* const why = reason_to_stay(static_cast<const Block*>(tile)->pins());
    if (why != nullptr) pinned.push_back({layout_->stretch_of(*tile), why});
  }
  std::vector<MappedChunk> wanted;
  mapping_.for_each([&](const MappedChunk& mapped) {
    if (relocation.wants(*mapped.chunk)) wanted.push_back(mapped);
  });
  for (MappedChunk& mapped : wanted) {
    const Size size = mapped.chunk->size();
    if (const char* const why = why_it_stays(mapped, pinned)) {
      relocation.stays(size, why);
      continue;
    }
    if (!moves) {
      ++relocation.missing[size];
      continue;
    }
    if (relocation.failure) break;
    const bool follows = !run.empty() && run.back().where().end() == mapped.offset &&
                         run.back().access == mapped.access && bytes < bytes_at_once;
    if (!follows) end_run();
    run.push_back(std::move(mapped));
    bytes += size;
  }
  if (!moves) return;
  if (!relocation.failure) end_run();
  run.clear();
  wanted.clear();
  follow_chunks();
  note_mapped();
}

// As much of it as there are chunks for.
void Arena::relocate_run(std::vector<MappedChunk>& run, Relocation& relocation) {
  Stretch stretch{run.front().offset, 0};
  std::vector<ChunkRef> chunks;
  for (const MappedChunk& mapped : run) {
    ChunkRef chunk = relocation.take(mapped.chunk->size());
    if (!chunk) break;
    stretch.size += chunk->size();
    chunks.push_back(std::move(chunk));
  }
  for (std::size_t i = chunks.size() + 1; i < run.size(); ++i) {
    ++relocation.missing[run[i].chunk->size()];
  }
  if (chunks.empty()) return;
  run.clear();  // the chunks that leave are to be nobody's
  const auto done = rebind(mapping_, stretch, std::move(chunks), Contents::Keep, relocation.copy);
  if (done.ok()) {
    relocation.moved += stretch.size;
  } else {
    relocation.failure = done.error();
  }
}

// Tiles say again where their memory lies.
void Arena::follow_chunks() {
  std::vector<Range*> free;
  layout_->for_each([&](Tile& tile) {
    if (tile.kind == TileKind::Free) free.push_back(static_cast<Range*>(&tile));
    if (tile.kind != TileKind::Block) return;
    static_cast<Block&>(tile).lies =
        far_within(layout_->stretch_of(tile)).empty() ? Lies::Near : Lies::Far;
  });
  for (Range* range : free) layout_->mark(*range, far_within(range->where));
  layout_->join_all();
}

}  // namespace cuvmm
