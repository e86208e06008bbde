// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "vmm/budget.hpp"

namespace cuvmm {

class LeasedBudget;

// Who leases memory to this process' budgets.
class Lessor {
 public:
  // A device by its UUID, since ordinals mean something in one process only.
  using Uuid = std::array<std::uint8_t, 16>;

  static constexpr Uuid the_host{};  // where a device's is asked for

  // A device's budget begins, or the host's; nothing is committed yet. Afterwards a device's may
  // have a lower limit.
  virtual void begin(LeasedBudget& budget, const Uuid& device, Size memory) = 0;

  enum class Extended : std::uint8_t { Yes, No, NobodyLeases };
  // Leases more, if that can be had without others being asked. The caller may hold locks: it waits
  // for a moment at most.
  virtual Extended extend(LeasedBudget& budget, Size size) = 0;
  // Waits until so much more is leased, which others may have to give back first. The caller holds
  // no lock; this thread's call counts as not under way meanwhile, so the process may be paused in
  // it. It waits until now_ns() is `longest`, but only until `until` for what processes hold that
  // lease nothing. False where that was not enough.
  virtual bool wait_for(LeasedBudget& budget, Size size, std::uint64_t until,
                        std::uint64_t longest) = 0;

 protected:
  ~Lessor() = default;
};

// A local limit, and within it what is leased. Allocating within the lease asks nobody.
class LeasedBudget final : public LocalBudget {
 public:
  explicit LeasedBudget(Size limit = unlimited) : LocalBudget(limit), own_limit_(limit) {}

  // Before anything is committed.
  void lease_from(Lessor& lessor) { lessor_.store(&lessor, std::memory_order_release); }
  Lessor* lessor() const { return lessor_.load(std::memory_order_acquire); }

  // The process' own limit stays the upper bound.
  void set_leased_limit(Size limit) { set_limit(std::min(limit, own_limit_)); }
  Size own_limit() const { return own_limit_; }

  // This and what follows by one thread at a time.
  void add_lease(Size size) {
    leased_.fetch_add(signed_size(size), std::memory_order_relaxed);
    left_.fetch_add(signed_size(size), std::memory_order_acq_rel);
  }
  // Takes back what is leased and not committed, up to `most`. Returns how much.
  Size take_surplus(Size most);
  // Leased and not committed; 0 where more is committed than leased, since nobody leased for a
  // while.
  Size surplus() const;
  // What is committed is what is leased from here on. Returns it.
  Size lease_what_is_held();

  // Waits for others, where somebody leases. False where that does not help.
  bool wait_for_more(Size size, std::uint64_t until, std::uint64_t longest) {
    Lessor* const from = lessor();
    return from != nullptr && from->wait_for(*this, size, until, longest);
  }

 private:
  bool grant(Size size) override;
  void take_back(Size size) override;
  bool take_from_lease(Size size);
  static std::int64_t signed_size(Size size) { return static_cast<std::int64_t>(size); }

  const Size own_limit_;
  std::atomic<Lessor*> lessor_{nullptr};
  std::atomic<std::int64_t> leased_{0};
  std::atomic<std::int64_t> left_{0};  // of that
};

}  // namespace cuvmm
