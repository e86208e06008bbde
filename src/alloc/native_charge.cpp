// SPDX-License-Identifier: Apache-2.0
#include "alloc/native_charge.hpp"

namespace cuvmm {
namespace {

struct ChargedChunk : ChunkRecord {
  ChargedChunk(NativeCharge charged, Chunk&& owned, ChunkHome* releases_it)
      : ChunkRecord(std::move(owned), releases_it), charge(std::move(charged)) {}
  NativeCharge charge;
};

class Releases final : public ChunkHome {
 public:
  // The charge ends after the driver has released the memory, so that it never counts as free
  // before.
  void come_home(ChunkRecord* record) override {
    auto* const chunk = static_cast<ChargedChunk*>(record);
    const NativeCharge charge = std::move(chunk->charge);
    delete chunk;
  }
  void was_exported(const ChunkRecord& /*record*/) override {}
};

ChunkHome& home() {
  static Releases one;
  return one;
}

}  // namespace

Result<NativeCharge> NativeCharge::within_limit(LeasedBudget* budget, Size size) {
  if (budget == nullptr) return NativeCharge{};
  Commitment right = TRY(budget->commit(size));
  right.keep();
  budget->count_as_native(size);
  return NativeCharge{budget, size, true};
}

NativeCharge NativeCharge::beyond_limit(LeasedBudget* budget, Size size) {
  if (budget == nullptr) return {};
  budget->note_native(size);
  return {budget, size, false};
}

NativeCharge::~NativeCharge() {
  if (budget_ == nullptr) return;
  if (is_committed_) {
    budget_->count_no_longer_as_native(size_);
    const Commitment ends{*budget_, size_};
  } else {
    budget_->forget_native(size_);
  }
}

ChunkRef adopt_charged(Chunk chunk, NativeCharge charge) {
  return ChunkRef::taking(new ChargedChunk{std::move(charge), std::move(chunk), &home()});
}

}  // namespace cuvmm
