// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "vmm/access_set.hpp"
#include "vmm/chunk_ref.hpp"

namespace cuvmm {

// What is mapped at an address. Without a chunk nothing is.
struct Backing {
  ChunkRef chunk = {};
  AccessSet access = {};
};

// The owner's record of what backs its addresses, in whatever form suits it.
class BackingLedger {
 public:
  // The driver has made this change. Called after each driver call, before the next one.
  virtual void set_backing(std::size_t slot, const Backing& now) = 0;

 protected:
  ~BackingLedger() = default;
};

// Changes what backs addresses: the one way in which chunks are exchanged behind them. A slot is an
// address at which a chunk begins now, or will. Either every slot gets its new backing, or all have
// the old one again and commit() returns the error. Chunks are unmapped first, then mapped, then
// access is set, once for each contiguous run of slots with the same rights.
//
// Unmapping is not ordered with streams and waits for nothing: the caller guarantees that no work
// uses what is unmapped. The old chunks are kept as long as this object exists.
class Remap {
 public:
  explicit Remap(const Driver& driver) : driver_(driver) {}

  // Slots are numbered from 0 in the order in which they are added, and changed in that order. A
  // run consists of slots added one after another.
  void add(CUdeviceptr address, Backing before, Backing after) {
    slots_.push_back({address, before, std::move(before), std::move(after)});
  }
  bool is_empty() const { return slots_.empty(); }

  // If the driver refuses both a step and its undo, the Error says so, and the ledger has been told
  // what is really mapped.
  Result<void> commit(BackingLedger& ledger);

 private:
  struct Slot {
    CUdeviceptr address;
    Backing now;
    Backing before;
    Backing after;
    bool may_have_new_access = false;  // the driver refused to set it, perhaps after a part
  };
  using Goal = Backing Slot::*;

  Result<void> carry_out(BackingLedger& ledger);
  bool undo(BackingLedger& ledger);
  static bool must_leave(const Slot& slot, Goal goal);
  static bool must_come(const Slot& slot, Goal goal);
  static bool needs_access(const Slot& slot, Goal goal);
  std::size_t end_of_run(std::size_t first, Goal goal) const;

  // Each makes one driver call and tells the ledger.
  Result<void> unmap(std::size_t index, BackingLedger& ledger);
  Result<void> map(std::size_t index, Goal goal, BackingLedger& ledger);
  Result<void> set_access(std::size_t first, std::size_t end, Goal goal, BackingLedger& ledger);

  const Driver& driver_;
  std::vector<Slot> slots_;
};

}  // namespace cuvmm
