// SPDX-License-Identifier: Apache-2.0
#include "vmm/chunk_store.hpp"

#include <algorithm>
#include <utility>

#include "vmm/shelves.hpp"

namespace cuvmm {

ChunkStore::ChunkStore(const Driver& driver) : shelves_(std::make_shared<Shelves>(driver)) {}

ChunkStore::~ChunkStore() {
  Shelves::close(shelves_);
}

Result<void> ChunkStore::serve(Location where, std::shared_ptr<Budget> budget, Size most_free) {
  if (budget == nullptr) return Error::invalid("serve a location", "no budget");
  return shelves_->add(where, std::move(budget), Shelf::For::TheDevice, most_free);
}

Result<void> ChunkStore::serve_spilled(Location where, std::shared_ptr<Budget> budget) {
  if (budget == nullptr) return Error::invalid("serve a location", "no budget");
  return shelves_->add(where, std::move(budget), Shelf::For::Spilling, unlimited);
}

bool ChunkStore::spills() const {
  return shelves_->spills();
}

Result<ChunkRef> ChunkStore::take_spilled(Size size, Export exportable) {
  return shelves_->take_spilled(size, exportable);
}

ChunkCounters ChunkStore::spilled() const {
  return shelves_->spilled();
}

Size ChunkStore::spill_room() const {
  return shelves_->spill_room();
}

Result<void> ChunkStore::make_spilled_ready(Size size) {
  return shelves_->make_spilled_ready(size);
}

Size ChunkStore::reclaim_spilled(Size wanted) {
  Size gone = 0;
  for (const Location& where : shelves_->spill_places()) {
    if (gone < wanted) gone += reclaim(where, wanted - gone);
  }
  return gone;
}

ChunkRef ChunkStore::take_free(const ChunkKind& kind) {
  return shelves_->take_free(kind);
}

Result<ChunkRef> ChunkStore::take(const ChunkKind& kind, const ReclaimClient* asker) {
  if (ChunkRef free = shelves_->take_free(kind)) return free;
  return shelves_->make(kind, kind.size, asker);
}

Result<std::vector<ChunkRef>> ChunkStore::take_many(const ChunkKind& kind, std::size_t count,
                                                    const ReclaimClient* asker) {
  if (kind.size != 0 && count > unlimited / kind.size) {
    return Error::invalid("take chunks", "more bytes than there are numbers", kind.size);
  }
  std::vector<ChunkRef> taken = shelves_->take_free(kind, count);
  while (taken.size() < count) {
    taken.push_back(TRY(shelves_->make(kind, (count - taken.size()) * kind.size, asker)));
  }
  return taken;
}

Size ChunkStore::trim(Location where, Size down_to) {
  return shelves_->trim(where, down_to);
}

Size ChunkStore::reclaim(Location where, Size wanted, const ReclaimClient* asker) {
  Size got = shelves_->release_free(where, wanted);
  if (got < wanted) {
    shelves_->clients().ask(wanted - got, where, asker);
    got += shelves_->release_free(where, wanted - got);
  }
  return got;
}

ReclaimRegistration ChunkStore::add_client(ReclaimClient& client, int order) {
  return shelves_->clients().add(client, order);
}

ChunkCounters ChunkStore::counters(Location where) const {
  return shelves_->counters(where);
}

Budget* ChunkStore::budget(Location where) const {
  return shelves_->budget(where);
}

Complaint ChunkStore::complaint() const {
  return shelves_->complaint();
}

}  // namespace cuvmm
