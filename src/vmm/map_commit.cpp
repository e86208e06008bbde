// SPDX-License-Identifier: Apache-2.0
// Carrying out a plan.
#include "vmm/map_plan.hpp"

namespace cuvmm {

// Records the backing of each slot in its mapping.
class MapPlan::Ledger final : public BackingLedger {
 public:
  void add(Mapping& mapping, Size offset) { slots_.push_back({&mapping, offset}); }
  void set_backing(std::size_t slot, const Backing& now) override {
    const auto [mapping, offset] = slots_[slot];
    const bool follows = last_.mapping == mapping && last_.offset < offset;
    place_ = mapping->record(follows ? place_ : mapping->first_reaching(offset), offset, now);
    last_ = slots_[slot];
  }

 private:
  struct Slot {
    Mapping* mapping = nullptr;
    Size offset = 0;
  };
  std::vector<Slot> slots_;
  Slot last_;  // told of last, and its place
  Mapping::Iterator place_;
};

Result<void> MapPlan::commit() {
  TRY(validate());
  if (is_empty()) return {};
  const Mapping& any = !unmaps_.empty() ? *unmaps_.front().mapping
                       : !maps_.empty() ? *maps_.front().mapping
                                        : *allows_.front().mapping;
  Remap remap{any.driver()};
  Ledger ledger;
  add_exchanges(remap, ledger);
  add_allows(remap, ledger);
  leaving_.clear();
  TRY(remap.commit(ledger));
  clear();
  return {};
}

void MapPlan::add_exchanges(Remap& remap, Ledger& ledger) const {
  auto leaving = leaving_.begin();
  const auto add_leaving = [&](Backing after) {
    const MappedChunk& mapped = leaving->place->second;
    ledger.add(*leaving->mapping, leaving->offset);
    remap.add(leaving->mapping->address_of(leaving->offset), {mapped.chunk, mapped.access},
              std::move(after));
    ++leaving;
  };
  for (const Map& map : maps_) {
    while (leaving != leaving_.end() &&
           before(leaving->mapping, leaving->offset, map.mapping, map.offset)) {
      add_leaving({});
    }
    const Backing after{map.chunk, map.access};
    if (leaving != leaving_.end() && leaving->mapping == map.mapping &&
        leaving->offset == map.offset) {
      add_leaving(after);
    } else {
      ledger.add(*map.mapping, map.offset);
      remap.add(map.mapping->address_of(map.offset), {}, after);
    }
  }
  while (leaving != leaving_.end()) add_leaving({});
}

void MapPlan::add_allows(Remap& remap, Ledger& ledger) const {
  for (const Allow& allow : allows_) {
    for (const MappedChunk& mapped : allow.mapping->chunks_in(allow.stretch)) {
      ledger.add(*allow.mapping, mapped.offset);
      remap.add(allow.mapping->address_of(mapped.offset), {mapped.chunk, mapped.access},
                {mapped.chunk, allow.access});
    }
  }
}

}  // namespace cuvmm
