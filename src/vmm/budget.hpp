// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <optional>
#include <utility>

#include "base/size.hpp"

namespace cuvmm {

class Budget;

// The right to hold a number of bytes of physical memory. Its destructor returns it to the budget,
// which must outlive it.
class Commitment {
 public:
  Commitment() = default;
  Commitment(Budget& budget, Size size) : budget_(&budget), size_(size) {}
  Commitment(Commitment&& other) noexcept
      : budget_(std::exchange(other.budget_, nullptr)), size_(other.size_) {}
  Commitment& operator=(Commitment&& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Commitment();

  Size size() const { return budget_ != nullptr ? size_ : 0; }
  // Disarms the destructor. The caller returns the bytes later by recreating the commitment as
  // Commitment{budget, size}.
  void keep() { budget_ = nullptr; }

 private:
  Budget* budget_ = nullptr;
  Size size_ = 0;
};

// How much physical memory may be held at one location. LocalBudget is a limit within the process;
// for memory leased from a broker between processes, see leased_budget.hpp.
class Budget {
 public:
  virtual ~Budget() = default;

  // OutOfMemory, with the available bytes, if it cannot be granted now.
  Result<Commitment> commit(Size size);

  // Memory that the program takes from the driver natively. It exists whether it fits or not, so
  // noting it cannot fail.
  virtual void note_native(Size size) = 0;
  virtual void forget_native(Size size) = 0;
  virtual Size native_bytes() const = 0;

  virtual Size available() const = 0;
  // The held bytes beyond the limit: it was lowered, or the program took memory natively.
  virtual Size excess() const { return 0; }

  // How many bytes must be released here before a refused request for `wanted` bytes can succeed:
  // those beyond the limit if the limit refused it, all of them if the driver or a lessor did.
  Size missing(const Error& refused, Size wanted) const;

 protected:
  virtual bool grant(Size size) = 0;
  virtual void take_back(Size size) = 0;
  // For budgets that combine others.
  static bool grant_of(Budget& other, Size size) { return other.grant(size); }
  static void take_back_of(Budget& other, Size size) { other.take_back(size); }

 private:
  friend class Commitment;
};

// A limit within this process. Thread-safe.
class LocalBudget : public Budget {
 public:
  explicit LocalBudget(Size limit = unlimited) : limit_(limit) {}

  Size limit() const { return limit_.load(std::memory_order_relaxed); }
  // Memory that is held already stays, even if it exceeds the new limit.
  void set_limit(Size limit) { limit_.store(limit, std::memory_order_relaxed); }

  Size held_bytes() const { return held_.load(std::memory_order_relaxed); }
  Size committed_bytes() const;  // without the program's own memory
  // Move committed bytes to the native count, and back: the program takes them from the driver
  // itself.
  void count_as_native(Size size) { native_.fetch_add(size, std::memory_order_relaxed); }
  void count_no_longer_as_native(Size size) { native_.fetch_sub(size, std::memory_order_relaxed); }
  void note_native(Size size) override;
  void forget_native(Size size) override;
  Size native_bytes() const override { return native_.load(std::memory_order_relaxed); }
  Size available() const override;
  Size excess() const override;

  // How far commitments may exceed the limit: while the memory of a paused program returns, as far
  // as it did before the pause; otherwise 0.
  void let_exceed(Size excess) { may_exceed_.store(excess, std::memory_order_relaxed); }

 protected:
  bool grant(Size size) override { return hold(size, most()).has_value(); }
  Size most() const { return saturating_sum(limit(), may_exceed_.load(std::memory_order_relaxed)); }
  void take_back(Size size) override;
  Size held() const { return held_.load(); }
  // Adds `size` to the held bytes and returns the new total. If that would exceed `most`, changes
  // nothing and returns nullopt.
  std::optional<Size> hold(Size size, Size most);

 private:
  std::atomic<Size> limit_;
  std::atomic<Size> may_exceed_{0};
  // Committed and native bytes in one atomic, so that one compare-and-swap enforces the limit.
  // Writes are sequentially consistent with those of LeasedBudget::may_hold_.
  std::atomic<Size> held_{0};
  std::atomic<Size> native_{0};  // the native part of held_
};

}  // namespace cuvmm
