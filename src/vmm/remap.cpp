// SPDX-License-Identifier: Apache-2.0
#include "vmm/remap.hpp"

#include "vmm/insist.hpp"

namespace cuvmm {

void Remap::add(CUdeviceptr address, Backing before, Backing after) {
  Slot& slot = slots_.emplace_back();
  slot.address = address;
  slot.now = before.chunk ? Now::Before : Now::Nothing;
  slot.access = before.chunk ? before.access : AccessSet::none();
  slot.before = std::move(before);
  slot.after = std::move(after);
  slot.begins_run = std::exchange(is_separate_, false);
  slot.may_have_new_access = false;
}

Result<void> Remap::commit(BackingLedger& ledger) {
  const Result<void> done = carry_out(ledger);
  is_torn_ = !done.ok() && !undo(ledger);
  if (done.ok()) return {};
  Error error = done.error();
  if (is_torn_) error.subject = "and what was done before it could not all be undone";
  return error;
}

Result<void> Remap::carry_out(BackingLedger& ledger) {
  const Now goal = Now::After;
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
  const Now goal = Now::Before;
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

bool Remap::must_leave(const Slot& slot, Now goal) {
  return slot.now != Now::Nothing && !slot.is_at(goal);
}

bool Remap::must_come(const Slot& slot, Now goal) {
  return slot.now == Now::Nothing && slot.goal(goal).chunk;
}

bool Remap::needs_access(const Slot& slot, Now goal) {
  return slot.is_at(goal) && (slot.may_have_new_access || !(slot.access == slot.goal(goal).access));
}

std::size_t Remap::end_of_run(std::size_t first, Now goal) const {
  std::size_t last = first;
  for (std::size_t i = first + 1; i < slots_.size() && needs_access(slots_[first], goal); ++i) {
    const Slot& next = slots_[i];
    if (next.begins_run) break;
    if (next.now == Now::Nothing) continue;  // a larger chunk has taken its place
    const bool continues = needs_access(next, goal) &&
                           next.address == slots_[last].address + slots_[last].chunk()->size() &&
                           next.goal(goal).access == slots_[last].goal(goal).access;
    if (!continues) break;
    last = i;
  }
  return last + 1;
}

Result<void> Remap::unmap(std::size_t index, BackingLedger& ledger) {
  Slot& slot = slots_[index];
  const Size size = slot.chunk()->size();
  TRY(driver_.check(driver_.cuMemUnmap(slot.address, size), "unmap chunk", size));
  ledger.remove_backing({index, slot.address}, slot.chunk());
  slot.now = Now::Nothing;
  slot.access = AccessSet::none();
  slot.may_have_new_access = false;
  return {};
}

Result<void> Remap::map(std::size_t index, Now goal, BackingLedger& ledger) {
  Slot& slot = slots_[index];
  const ChunkRef& chunk = slot.goal(goal).chunk;
  const Size size = chunk->size();
  TRY(driver_.check(driver_.cuMemMap(slot.address, size, 0, chunk->handle(), 0), "map chunk",
                    size));
  slot.now = goal;
  ledger.set_backing({index, slot.address}, chunk, slot.access);
  return {};
}

// Sets the access to a run. Its slots may have had different rights: one call revokes what any of
// them had.
Result<void> Remap::set_access(std::size_t first, std::size_t end, Now goal,
                               BackingLedger& ledger) {
  const CUdeviceptr address = slots_[first].address;
  const AccessSet access = slots_[first].goal(goal).access;
  AccessSet had;
  for (std::size_t i = first; i < end; ++i) {
    Slot& slot = slots_[i];
    if (slot.now == Now::Nothing) continue;
    had = had | slot.access;
    if (slot.may_have_new_access) had = had | slot.after.access;
    slot.may_have_new_access = true;
  }
  const Size size = slots_[end - 1].address + slots_[end - 1].chunk()->size() - address;
  const AccessChange change{had, access};
  TRY(driver_.check(
      driver_.cuMemSetAccess(address, size, change.lines().data(), change.lines().size()),
      "set access", size));
  for (std::size_t i = first; i < end; ++i) {
    Slot& slot = slots_[i];
    if (slot.now == Now::Nothing) continue;
    slot.access = access;
    slot.may_have_new_access = false;
    ledger.set_backing({i, slot.address}, slot.chunk(), access);
  }
  return {};
}

}  // namespace cuvmm
