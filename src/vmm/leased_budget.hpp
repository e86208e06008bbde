// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/still_wanted.hpp"
#include "trace/record.hpp"
#include "vmm/budget.hpp"

namespace cuvmm {

class LeasedBudget;

// Leases memory to the budgets of this process.
class Lessor {
 public:
  // Devices are named by UUID, since ordinals are valid only within one process.
  using Uuid = std::array<std::uint8_t, 16>;

  static constexpr Uuid the_host{};  // stands for the host in place of a device

  // Call when the budget of a device, or of the host, begins, before anything is committed. May
  // lower the limit of a device's budget.
  virtual void begin(LeasedBudget& budget, const Uuid& device, Size memory) = 0;

  enum class Extended : std::uint8_t { Yes, No, NobodyLeases };
  // Leases more, if that is possible without asking other processes. The caller may hold locks, so
  // this waits only for a moment.
  virtual Extended extend(LeasedBudget& budget, Size size) = 0;
  // Waits until `size` more bytes are leased, which others may have to give back first. The caller
  // must hold no lock. Meanwhile this thread's call does not count as in flight, so the process may
  // be paused. Waits until now_ns() is `longest`, but only until `until` for memory held by
  // processes that lease nothing. Waits a few seconds for a lessor that has gone away to return.
  // Returns true if the caller should try again, also if the lessor did not return: then the driver
  // decides. Returns false if waiting does not help, or `is_wanted` has returned false.
  virtual bool wait_for(LeasedBudget& budget, Size size, std::uint64_t until, std::uint64_t longest,
                        const StillWanted& is_wanted) = 0;

 protected:
  ~Lessor() = default;
};

// A local limit and, within it, a lease. Committing within the lease asks no other process, and
// costs no more than without a lease.
//
// For that reason, commitments are not subtracted from the lease. Instead, a commitment first adds
// to the held bytes and then rereads may_hold_; a thread that shrinks the lease first lowers
// may_hold_ and then rereads the held bytes. If the two race, at least one of them notices and
// backs off.
class LeasedBudget final : public LocalBudget {
 public:
  // The trace shows the limits of a budget that names its device.
  explicit LeasedBudget(Size limit = unlimited, std::int16_t device = no_device);

  // Call before anything is committed.
  void lease_from(Lessor& lessor) { lessor_.store(&lessor, std::memory_order_release); }
  Lessor* lessor() const { return lessor_.load(std::memory_order_acquire); }

  // The process's own limit remains the upper bound.
  void set_leased_limit(Size limit);
  Size own_limit() const { return own_limit_; }

  // This and the following functions are called by one thread at a time.
  void add_lease(Size size) {
    leased_.fetch_add(size, std::memory_order_relaxed);
    may_hold_.fetch_add(size);
  }
  // Takes back up to `most` bytes that are leased but not committed. Returns how many.
  Size take_surplus(Size most);
  // Leased but not committed bytes. 0 if more is committed than leased, because the lessor was
  // absent for a time.
  Size surplus() const;
  // Committed but not leased bytes, from a time without the lessor.
  Size deficit() const;
  // Sets the lease to the committed bytes, and returns it.
  Size lease_what_is_held();

  void note_native(Size size) override;
  void forget_native(Size size) override;

  // Waits for other processes if there is a lessor. Returns false if that does not help.
  bool wait_for_more(Size size, std::uint64_t until, std::uint64_t longest,
                     const StillWanted& is_wanted = &always_wanted) {
    Lessor* const from = lessor();
    return from != nullptr && from->wait_for(*this, size, until, longest, is_wanted);
  }

 private:
  bool grant(Size size) override;
  bool hold_leased(Size size);
  void record_limit() const;

  const Size own_limit_;
  const std::int16_t device_;
  std::atomic<Lessor*> lessor_{nullptr};
  std::atomic<Size> leased_{0};
  std::atomic<Size> may_hold_{0};  // leased plus native bytes
};

}  // namespace cuvmm
