// SPDX-License-Identifier: Apache-2.0
#include "vmm/chunk_store.hpp"

#include <algorithm>
#include <utility>

#include "vmm/chunk_store_impl.hpp"

namespace cuvmm {

ChunkStore::ChunkStore(const Driver& driver) : impl_(std::make_shared<Impl>(driver)) {}

ChunkStore::~ChunkStore() {
  Impl::close(impl_);
}

Result<void> ChunkStore::serve(Location where, std::shared_ptr<Budget> budget, Size most_free) {
  if (budget == nullptr) return Error::invalid("serve a location", "no budget");
  return impl_->add(where, std::move(budget), LocalChunks::For::TheDevice, most_free);
}

Result<void> ChunkStore::serve_spilled(Location where, std::shared_ptr<Budget> budget) {
  if (budget == nullptr) return Error::invalid("serve a location", "no budget");
  return impl_->add(where, std::move(budget), LocalChunks::For::Spilling, unlimited);
}

bool ChunkStore::spills() const {
  return impl_->spills();
}

Result<ChunkRef> ChunkStore::take_spilled(Size size, Export exportable) {
  return impl_->take_spilled(size, exportable);
}

ChunkCounters ChunkStore::spilled() const {
  return impl_->spilled();
}

MemoryInHand& ChunkStore::in_hand() {
  return impl_->in_hand();
}

bool ChunkStore::has_spilled() const {
  return impl_->has_spilled();
}

Size ChunkStore::spill_room() const {
  return impl_->spill_room();
}

Result<void> ChunkStore::make_spilled_ready(Size size) {
  return impl_->make_spilled_ready(size);
}

Size ChunkStore::reclaim_spilled(Size wanted) {
  Size gone = 0;
  for (const Location& where : impl_->spill_places()) {
    if (gone < wanted) gone += reclaim(where, wanted - gone);
  }
  return gone;
}

ChunkRef ChunkStore::take_free(const ChunkKind& kind) {
  return impl_->take_free(kind);
}

Result<ChunkRef> ChunkStore::take(const ChunkKind& kind, const ReclaimClient* asker) {
  return impl_->take(kind, asker);
}

Result<ChunkRef> ChunkStore::take_even_if_unexportable(const ChunkKind& kind) {
  return impl_->take_even_if_unexportable(kind);
}

Result<std::vector<ChunkRef>> ChunkStore::take_many(const ChunkKind& kind, std::size_t count,
                                                    const ReclaimClient* asker) {
  if (kind.size != 0 && count > unlimited / kind.size) {
    return Error::invalid("take chunks", "more bytes than there are numbers", kind.size);
  }
  std::vector<ChunkRef> taken = impl_->take_free(kind, count);
  while (taken.size() < count) {
    taken.push_back(TRY(impl_->make(kind, (count - taken.size()) * kind.size, asker)));
  }
  return taken;
}

Size ChunkStore::trim(Location where, Size down_to) {
  return impl_->trim(where, down_to);
}

Size ChunkStore::reclaim(Location where, Size wanted, const ReclaimClient* asker) {
  Size got = impl_->release_free(where, wanted);
  if (got < wanted) {
    impl_->clients().ask(wanted - got, where, asker);
    got += impl_->release_free(where, wanted - got);
  }
  return got;
}

ReclaimRegistration ChunkStore::add_client(ReclaimClient& client, int order) {
  return impl_->clients().add(client, order);
}

ChunkCounters ChunkStore::counters(Location where) const {
  return impl_->counters(where);
}

Budget* ChunkStore::budget(Location where) const {
  return impl_->budget(where);
}

InvariantViolation ChunkStore::violation() const {
  return impl_->violation();
}

}  // namespace cuvmm
