// SPDX-License-Identifier: Apache-2.0
#include "vmm/deferred_release.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <vector>

#include "base/lock.hpp"
#include "base/made_once.hpp"

namespace cuvmm {
namespace {

struct Debt {
  Deferred what;
  std::function<CUresult()> ask;
};

// A set of handles, each as often as it was added, that takes few bytes a handle: there may be as
// many as the device has granules.
class OwnReferences {
 public:
  using Handle = CUmemGenericAllocationHandle;

  void add(Handle chunk) {
    std::vector<Handle>& some = near(chunk);
    if (some.size() == some.capacity()) some.reserve(some.size() + some.size() / 8 + 1);
    some.push_back(chunk);
  }
  // A forked child may drop references of its parent, which are not in its ledger.
  void remove(Handle chunk) {
    std::vector<Handle>& some = near(chunk);
    const auto found = std::find(some.begin(), some.end(), chunk);
    if (found == some.end()) return;
    *found = some.back();
    some.pop_back();
  }
  bool contains(Handle chunk) {
    const std::vector<Handle>& some = near(chunk);
    return std::find(some.begin(), some.end(), chunk) != some.end();
  }

 private:
  std::vector<Handle>& near(Handle chunk) {
    constexpr Handle golden_ratio = 0x9E37'79B9'7F4A'7C15;
    return by_hash_[chunk * golden_ratio >> 56];
  }

  std::array<std::vector<Handle>, 256> by_hash_;
};

struct Ledger {
  Lock lock{LockOrder::GiveBack};  // guards what follows
  std::vector<Debt> debts;
  OwnReferences references;
  std::atomic<std::size_t> count{0};  // of debts, readable without the lock
};

// Never destroyed, because destructors of other statics may still defer releases.
constinit MadeOnce<Ledger> ledger;

}  // namespace

void detail::defer(Deferred what, std::function<CUresult()> ask) {
  Ledger& book = ledger.get();
  const Holding holding{book.lock};
  book.debts.push_back({what, std::move(ask)});
  ++book.count;
}

void add_own_reference(CUmemGenericAllocationHandle chunk) {
  Ledger& book = ledger.get();
  const Holding holding{book.lock};
  book.references.add(chunk);
}

void remove_own_reference(CUmemGenericAllocationHandle chunk) {
  Ledger& book = ledger.get();
  const Holding holding{book.lock};
  book.references.remove(chunk);
}

bool has_own_reference(CUmemGenericAllocationHandle chunk) {
  Ledger& book = ledger.get();
  const Holding holding{book.lock};
  return book.references.contains(chunk);
}

std::size_t deferred_releases() {
  return ledger.get().count.load(std::memory_order_relaxed);
}

std::size_t retry_releases() {
  if (deferred_releases() == 0) return 0;
  Ledger& book = ledger.get();
  std::vector<Debt> debts;
  {
    const Holding holding{book.lock};
    debts.swap(book.debts);
  }
  std::stable_sort(debts.begin(), debts.end(),
                   [](const Debt& a, const Debt& b) { return a.what < b.what; });
  // Without the lock, since destroying what a completed release owned may take other locks.
  const auto unpaid = std::stable_partition(
      debts.begin(), debts.end(), [](const Debt& debt) { return taken_back(debt.ask()); });
  const auto paid = static_cast<std::size_t>(unpaid - debts.begin());
  {
    const Holding holding{book.lock};
    book.debts.insert(book.debts.end(), std::make_move_iterator(unpaid),
                      std::make_move_iterator(debts.end()));
    book.count -= paid;
  }
  // Destroys what completed releases owned. That may release more, and defer it again.
  debts.clear();
  return deferred_releases();
}

void forget_deferred_after_fork() {
  ledger.forget_after_fork();
}

}  // namespace cuvmm
