// SPDX-License-Identifier: Apache-2.0
#include "alloc/lending.hpp"

#include <algorithm>

namespace cuvmm {

Lending::Entry Lending::lend(Allocation& allocation, const AllocationFacts& facts,
                             const Secret& fresh) {
  const Holding holding{lock_};
  const auto [lent, is_new] =
      all_.try_emplace(facts.buffer_id, Lent{.allocation = &allocation,
                                             .owner = facts.context_memory(),
                                             .size = facts.asked,
                                             .secret = fresh,
                                             .ticket = {}});
  return {lent->second.secret, is_new};
}

std::optional<Lending::Secret> Lending::secret_of(Id id) const {
  const Holding holding{lock_};
  const auto found = all_.find(id);
  if (found == all_.end() || found->second.freed) return std::nullopt;
  return found->second.secret;
}

Result<Lending::Block> Lending::borrow(Id id) {
  constexpr const char* doing = "lend memory";
  const Holding holding{lock_};
  const auto found = all_.find(id);
  if (found == all_.end() || found->second.freed) {
    return Error{.kind = ErrorKind::NotFound, .doing = doing, .subject = "it was freed"};
  }
  Lent& lent = found->second;
  const ChunksBehind behind = lent.owner->chunks_behind(*lent.allocation);
  if (behind.chunks.empty()) return Error::invalid(doing, "nothing lies behind it");
  ++lent.borrowers;
  Block block{behind.offset, lent.size, {}};
  block.chunks.reserve(behind.chunks.size());
  for (const MappedChunk& one : behind.chunks) block.chunks.push_back(one.chunk);
  return block;
}

void Lending::give_back(Id id) {
  const Holding holding{lock_};
  const auto found = all_.find(id);
  if (found == all_.end()) return;  // its context has ended
  Lent& lent = found->second;
  if (--lent.borrowers != 0 || !lent.freed) return;
  lent.owner->free_after(*lent.allocation, lent.ticket);
  all_.erase(found);
}

void Lending::catch_up() const {
  std::function<void()> how;
  {
    const Holding holding{lock_};
    how = catch_up_;
  }
  if (how) how();
}

void Lending::catch_up_by(std::function<void()> how) {
  const Holding holding{lock_};
  catch_up_ = std::move(how);
}

bool Lending::end(Id id, const FreeTicket& ticket) {
  const Holding holding{lock_};
  const auto found = all_.find(id);
  if (found == all_.end()) return true;
  if (found->second.borrowers == 0) {
    all_.erase(found);
    return true;
  }
  found->second.freed = true;
  found->second.ticket = ticket;
  return false;
}

void Lending::forget(Id id) {
  const Holding holding{lock_};
  const auto found = all_.find(id);
  if (found != all_.end() && found->second.borrowers == 0) all_.erase(found);
}

void Lending::forget_all_of(const ContextMemory& owner) {
  const Holding holding{lock_};
  std::erase_if(all_, [&](const auto& lent) { return lent.second.owner == &owner; });
}

std::size_t Lending::lent() const {
  const Holding holding{lock_};
  return all_.size();
}

std::size_t Lending::kept() const {
  const Holding holding{lock_};
  return static_cast<std::size_t>(
      std::count_if(all_.begin(), all_.end(), [](const auto& lent) { return lent.second.freed; }));
}

}  // namespace cuvmm
