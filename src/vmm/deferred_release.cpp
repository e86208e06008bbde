// SPDX-License-Identifier: Apache-2.0
#include "vmm/deferred_release.hpp"

#include <algorithm>
#include <atomic>
#include <vector>

#include "base/lock.hpp"
#include "base/made_once.hpp"

namespace cuvmm {
namespace {

struct Debt {
  Deferred what;
  std::function<CUresult()> ask;
  CUmemGenericAllocationHandle chunk;  // 0: it is something else
};

struct Ledger {
  Lock lock{LockOrder::GiveBack};  // guards what follows
  std::vector<Debt> debts;
  std::vector<CUmemGenericAllocationHandle> in_retry;  // chunks whose release is being tried again
  std::atomic<std::size_t> count{0};                   // readable without the lock
};

// Never destroyed, because destructors of other statics may still defer releases.
constinit MadeOnce<Ledger> ledger;

}  // namespace

void detail::defer(Deferred what, std::function<CUresult()> ask,
                   CUmemGenericAllocationHandle chunk) {
  Ledger& book = ledger.get();
  const Holding holding{book.lock};
  book.debts.push_back({what, std::move(ask), chunk});
  ++book.count;
}

bool is_release_deferred(CUmemGenericAllocationHandle handle) {
  if (handle == 0 || deferred_releases() == 0) return false;
  Ledger& book = ledger.get();
  const Holding holding{book.lock};
  return std::any_of(book.debts.begin(), book.debts.end(),
                     [&](const Debt& debt) { return debt.chunk == handle; }) ||
         std::find(book.in_retry.begin(), book.in_retry.end(), handle) != book.in_retry.end();
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
    for (const Debt& debt : debts) book.in_retry.push_back(debt.chunk);
  }
  std::stable_sort(debts.begin(), debts.end(),
                   [](const Debt& a, const Debt& b) { return a.what < b.what; });
  // Without the lock, since destroying what a completed release owned may take other locks.
  const auto unpaid = std::stable_partition(
      debts.begin(), debts.end(), [](const Debt& debt) { return taken_back(debt.ask()); });
  const auto paid = static_cast<std::size_t>(unpaid - debts.begin());
  {
    const Holding holding{book.lock};
    for (const Debt& debt : debts) {
      book.in_retry.erase(std::find(book.in_retry.begin(), book.in_retry.end(), debt.chunk));
    }
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
