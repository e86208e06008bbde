// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <unordered_map>

#include "alloc/context_memory.hpp"
#include "base/lock.hpp"

namespace cuvmm {

// Blocking memory that other processes may open: the blocks that were lent, the number of processes
// that have each open, and the blocks that were freed meanwhile. A freed block stays as it is, and
// counts, until the last borrower is done; to its own program it is gone. Thread-safe.
class Lending {
 public:
  using Id = std::uint64_t;  // the allocation's buffer ID
  // A process that knows it may open the memory.
  using Secret = std::array<std::uint8_t, 16>;

  // Lets the allocation be borrowed, under the secret that it has, or else under `fresh`.
  struct Entry {
    Secret secret;
    bool is_new;  // it was not lent before
  };
  Entry lend(Allocation& allocation, const AllocationFacts& facts, const Secret& fresh);
  // nullopt if it was never lent, or was freed.
  std::optional<Secret> secret_of(Id id) const;

  struct Block {
    Size offset = 0;  // from the first chunk's first byte
    Size size = 0;
    std::vector<ChunkRef> chunks;
  };
  // Adds a borrower. NotFound if the block was never lent, or was freed.
  Result<Block> borrow(Id id);
  // Removes a borrower.
  void give_back(Id id);

  // Returns once every borrower that has already closed its memory, or ended, is removed. Call with
  // no lock held.
  void catch_up() const;
  // How to do that, from the thread that learns of it; empty: there are no borrowers.
  void catch_up_by(std::function<void()> how);

  // The program has freed the block. Returns true if it has no borrowers and can be freed now.
  // Otherwise it is freed when the last borrower gives it back, for reuse after the ticket.
  bool end(Id id, const FreeTicket& ticket);
  // Undoes a lend() that was new, for a block that the program freed meanwhile. An entry with
  // borrowers stays, since the block is freed with the last of them.
  void forget(Id id);
  // The context is gone with all of its memory. Borrowers keep the chunks.
  void forget_all_of(const ContextMemory& owner);

  std::size_t lent() const;
  std::size_t kept() const;  // freed but still open elsewhere

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
  std::function<void()> catch_up_;
};

}  // namespace cuvmm
