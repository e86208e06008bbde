// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "vmm/access_set.hpp"
#include "vmm/chunk_ref.hpp"

namespace cuvmm {

// The chunk that is mapped at an address, and the access to it. Without a chunk, nothing is mapped.
struct Backing {
  ChunkRef chunk = {};
  AccessSet access = {};
};

// The owner's record of what backs its addresses, in whatever form suits it. Remap reports each
// change after the driver call that made it, and before the next one.
class BackingLedger {
 public:
  struct At {
    std::size_t slot;
    CUdeviceptr address;
  };
  // `chunk` is mapped there, with this access, which is none until the driver has set it.
  virtual void set_backing(At at, const ChunkRef& chunk, const AccessSet& access) = 0;
  // `chunk` is no longer mapped there.
  virtual void remove_backing(At at, const ChunkRef& chunk) = 0;

 protected:
  ~BackingLedger() = default;
};

// Changes what backs addresses: every exchange of chunks behind addresses goes through it. A slot
// is an address at which a chunk begins now, or will. Either every slot gets its new backing, or
// all have the old one again and commit() returns the error. Chunks are unmapped first, then
// mapped, then access is set, once for each contiguous run of slots with the same rights.
//
// Unmapping is not ordered with streams and waits for nothing: the caller guarantees that no work
// uses what is unmapped. The old chunks are kept as long as this object exists.
class Remap {
 public:
  explicit Remap(const Driver& driver) : driver_(driver) {}

  // Slots are numbered from 0 in the order in which they are added, and changed in that order. A
  // run consists of slots added one after another; separate() begins a new one.
  void add(CUdeviceptr address, Backing before, Backing after);
  void separate() { is_separate_ = true; }
  void reserve(std::size_t slots) { slots_.reserve(slots); }

  // If the driver refuses both a step and its undo, the Error says so, and the ledger records what
  // is really mapped. A commit may be retried after an Error.
  Result<void> commit(BackingLedger& ledger);
  // Whether the last commit could not be undone.
  bool is_torn() const { return is_torn_; }

 private:
  enum class Now : std::uint8_t { Nothing, Before, After };
  struct Slot {
    CUdeviceptr address;
    Backing before;
    Backing after;
    AccessSet access;  // now
    Now now;           // whose chunk is mapped
    bool begins_run;
    bool may_have_new_access;  // the driver refused to set it, perhaps after a part

    const ChunkRef& chunk() const { return now == Now::After ? after.chunk : before.chunk; }
    const Backing& goal(Now which) const { return which == Now::After ? after : before; }
    bool is_at(Now which) const {
      return now != Now::Nothing && (now == which || before.chunk == after.chunk);
    }
  };

  Result<void> carry_out(BackingLedger& ledger);
  bool undo(BackingLedger& ledger);
  static bool must_leave(const Slot& slot, Now goal);
  static bool must_come(const Slot& slot, Now goal);
  static bool needs_access(const Slot& slot, Now goal);
  std::size_t end_of_run(std::size_t first, Now goal) const;

  // Each makes one driver call and tells the ledger.
  Result<void> unmap(std::size_t index, BackingLedger& ledger);
  Result<void> map(std::size_t index, Now goal, BackingLedger& ledger);
  Result<void> set_access(std::size_t first, std::size_t end, Now goal, BackingLedger& ledger);

  const Driver& driver_;
  std::vector<Slot> slots_;
  bool is_separate_ = false;  // the next slot
  bool is_torn_ = false;
};

}  // namespace cuvmm
