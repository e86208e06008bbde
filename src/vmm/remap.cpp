// SPDX-License-Identifier: Apache-2.0
#include "vmm/remap.hpp"

namespace cuvmm {
namespace {

// Runs a step of an undo, a second time if it fails: an undo has no alternative.
template <class Step>
bool insist(Step step) {
  return step().ok() || step().ok();
}

}  // namespace

Result<void> Remap::commit(BackingLedger& ledger) {
  const Result<void> done = carry_out(ledger);
  if (done.ok()) return {};
  Error error = done.error();
  if (!undo(ledger)) error.subject = "and what was done before it could not all be undone";
  return error;
}

Result<void> Remap::carry_out(BackingLedger& ledger) {
  const Goal goal = &Slot::after;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (must_leave(slots_[i], goal)) TRY(unmap(i, ledger));
  }
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (must_come(slots_[i], goal)) TRY(map(i, goal, ledger));
  }
  for (std::size_t i = 0; i < slots_.size();) {
    const std::size_t end = end_of_run(i, goal);
    if (needs_access(slots_[i], goal)) TRY(set_access(i, end, goal, ledger));
    i = end;
  }
  return {};
}

bool Remap::undo(BackingLedger& ledger) {
  const Goal goal = &Slot::before;
  bool complete = true;
  for (std::size_t i = slots_.size(); i-- > 0;) {
    if (!must_leave(slots_[i], goal)) continue;
    complete &= insist([&] { return unmap(i, ledger); });
  }
  for (std::size_t i = slots_.size(); i-- > 0;) {
    if (!must_come(slots_[i], goal)) continue;
    complete &= insist([&] { return map(i, goal, ledger); });
  }
  for (std::size_t i = 0; i < slots_.size();) {
    const std::size_t end = end_of_run(i, goal);
    if (needs_access(slots_[i], goal)) {
      complete &= insist([&] { return set_access(i, end, goal, ledger); });
    }
    i = end;
  }
  return complete;
}

bool Remap::must_leave(const Slot& slot, Goal goal) {
  return slot.now.chunk && !(slot.now.chunk == (slot.*goal).chunk);
}

bool Remap::must_come(const Slot& slot, Goal goal) {
  return !slot.now.chunk && (slot.*goal).chunk;
}

bool Remap::needs_access(const Slot& slot, Goal goal) {
  if (!slot.now.chunk || !(slot.now.chunk == (slot.*goal).chunk)) return false;
  return slot.may_have_new_access || !(slot.now.access == (slot.*goal).access);
}

std::size_t Remap::end_of_run(std::size_t first, Goal goal) const {
  std::size_t end = first + 1;
  while (end < slots_.size()) {
    const Slot& last = slots_[end - 1];
    const Slot& next = slots_[end];
    const bool continues = needs_access(last, goal) && needs_access(next, goal) &&
                           next.address == last.address + last.now.chunk->size() &&
                           (next.*goal).access == (last.*goal).access;
    if (!continues) break;
    ++end;
  }
  return end;
}

Result<void> Remap::unmap(std::size_t index, BackingLedger& ledger) {
  Slot& slot = slots_[index];
  const Size size = slot.now.chunk->size();
  TRY(driver_.check(driver_.cuMemUnmap(slot.address, size), "unmap chunk", size));
  slot.now = {};
  slot.may_have_new_access = false;
  ledger.set_backing(index, slot.now);
  return {};
}

Result<void> Remap::map(std::size_t index, Goal goal, BackingLedger& ledger) {
  Slot& slot = slots_[index];
  const ChunkRef& chunk = (slot.*goal).chunk;
  const Size size = chunk->size();
  TRY(driver_.check(driver_.cuMemMap(slot.address, size, 0, chunk->handle(), 0), "map chunk",
                    size));
  slot.now.chunk = chunk;
  ledger.set_backing(index, slot.now);
  return {};
}

// Sets the access to a run. Its slots may have had different rights: one call revokes what any of
// them had.
Result<void> Remap::set_access(std::size_t first, std::size_t end, Goal goal,
                               BackingLedger& ledger) {
  const CUdeviceptr address = slots_[first].address;
  const AccessSet access = (slots_[first].*goal).access;
  AccessSet had;
  for (std::size_t i = first; i < end; ++i) {
    Slot& slot = slots_[i];
    had = had | slot.now.access;
    if (slot.may_have_new_access) had = had | slot.after.access;
    slot.may_have_new_access = true;
  }
  const Size size = slots_[end - 1].address + slots_[end - 1].now.chunk->size() - address;
  const AccessChange change{had, access};
  TRY(driver_.check(
      driver_.cuMemSetAccess(address, size, change.lines().data(), change.lines().size()),
      "set access", size));
  for (std::size_t i = first; i < end; ++i) {
    slots_[i].now.access = access;
    slots_[i].may_have_new_access = false;
    ledger.set_backing(i, slots_[i].now);
  }
  return {};
}

}  // namespace cuvmm
