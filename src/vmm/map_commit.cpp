// SPDX-License-Identifier: Apache-2.0
// Carrying out a plan.
#include <algorithm>
#include <utility>

#include "vmm/map_plan.hpp"
#include "vmm/remap.hpp"

namespace cuvmm {

// Records the backing of each slot in its mapping.
class MapPlan::Ledger final : public BackingLedger {
 public:
  void add(Mapping& mapping) {
    if (mappings_.empty() || mappings_.back() != &mapping) mappings_.push_back(&mapping);
  }
  void set_backing(At at, const ChunkRef& chunk, const AccessSet& access) override {
    const Size offset = look_at(at.address);
    place_ = last_->enter(place_, offset, chunk, access);
  }
  void remove_backing(At at, const ChunkRef&) override {
    const Size offset = look_at(at.address);
    place_ = last_->remove(place_, offset);
  }

 private:
  static bool has(const Mapping* mapping, CUdeviceptr address) {
    return Stretch{mapping->address(), mapping->size()}.contains(address);
  }
  // Returns the offset in the mapping that has the address.
  Size look_at(CUdeviceptr address) {
    const bool follows = last_ != nullptr && has(last_, address) && address > last_address_;
    if (!follows) {
      last_ = *std::find_if(mappings_.begin(), mappings_.end(),
                            [&](const Mapping* one) { return has(one, address); });
      place_ = last_->first_reaching(address - last_->address());
    }
    last_address_ = address;
    return address - last_->address();
  }

  std::vector<Mapping*> mappings_;
  Mapping* last_ = nullptr;
  CUdeviceptr last_address_ = 0;
  // In that mapping: the entry of the last slot, or the one after it.
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
  remap.reserve(leaving_.size() + maps_.size());
  add_exchanges(remap, ledger);
  add_allows(remap, ledger);
  leaving_.clear();
  TRY(remap.commit(ledger));
  clear();
  return {};
}

void MapPlan::add_exchanges(Remap& remap, Ledger& ledger) const {
  const Mapping* last = nullptr;
  const auto add = [&](Mapping& mapping, Size offset, Backing from, Backing to) {
    if (std::exchange(last, &mapping) != &mapping) remap.separate();
    ledger.add(mapping);
    remap.add(mapping.address_of(offset), std::move(from), std::move(to));
  };
  auto leaving = leaving_.begin();
  const auto add_leaving = [&](Backing to) {
    const MappedChunk& mapped = leaving->place->second;
    add(*leaving->mapping, leaving->offset, {mapped.chunk, mapped.access}, std::move(to));
    ++leaving;
  };
  for (const Map& map : maps_) {
    while (leaving != leaving_.end() &&
           before(leaving->mapping, leaving->offset, map.mapping, map.offset)) {
      add_leaving({});
    }
    const bool is_exchange = leaving != leaving_.end() && leaving->mapping == map.mapping &&
                             leaving->offset == map.offset;
    if (is_exchange) {
      add_leaving({map.chunk, map.access});
    } else {
      add(*map.mapping, map.offset, {}, {map.chunk, map.access});
    }
  }
  while (leaving != leaving_.end()) add_leaving({});
}

void MapPlan::add_allows(Remap& remap, Ledger& ledger) const {
  for (const Allow& allow : allows_) {
    remap.separate();
    ledger.add(*allow.mapping);
    for (const MappedChunk& mapped : allow.mapping->chunks_in(allow.stretch)) {
      remap.add(allow.mapping->address_of(mapped.offset), {mapped.chunk, mapped.access},
                {mapped.chunk, allow.access});
    }
  }
}

}  // namespace cuvmm
