// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>
#include <unordered_map>

#include "alloc/context_memory.hpp"
#include "base/lock.hpp"

namespace cuvmm {

// Blocking memory that other processes may have: what was lent, how many have it open, and what was
// freed while they had. Such a block stays as it is, and counts, until the last of them is done; to
// its own program it is gone. Everything may be called from any thread.
class Lending {
 public:
  using Id = std::uint64_t;  // the allocation's buffer id
  // Who knows it may have the memory.
  using Secret = std::array<std::uint8_t, 16>;

  // It may be borrowed from now on. Returns the secret that it has, `fresh` where it has none yet.
  Secret lend(Allocation& allocation, const AllocationFacts& facts, const Secret& fresh);
  // Nothing where it was never lent, or was freed.
  std::optional<Secret> secret_of(Id id) const;

  struct Block {
    Size offset = 0;  // from the first chunk's first byte
    Size size = 0;
    std::vector<ChunkRef> chunks;
  };
  // One more has it. NotFound where it was never lent, or was freed.
  Result<Block> borrow(Id id);
  // One of them is done.
  void give_back(Id id);

  // The program has freed it. True where nobody else has it, so that it may be freed: else it
  // will be when the last one gives it back, for use after the ticket.
  bool end(Id id, const FreeTicket& ticket);
  // It is not the program's any more although it was lent a moment ago.
  void forget(Id id);
  // Its context is gone, with all of this memory; those who have it keep its chunks.
  void forget_all_of(const ContextMemory& owner);

  std::size_t lent() const;
  std::size_t kept() const;  // freed, and still open elsewhere

 private:
  struct Lent {
    Allocation* allocation;
    ContextMemory* owner;
    Size size;
    Secret secret;
    std::uint32_t borrowers = 0;
    bool freed = false;
    FreeTicket ticket;
  };

  mutable Lock lock_{LockOrder::Lending};  // guards what follows
  std::unordered_map<Id, Lent> all_;
};

}  // namespace cuvmm
