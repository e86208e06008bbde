// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <utility>

#include "base/size.hpp"

namespace cuvmm {

class Budget;

// The right to hold so many bytes of physical memory; goes back to its budget when it ends. The
// budget outlives it.
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
  // The keeper ends it: Commitment{budget, size} is the same commitment again.
  void keep() { budget_ = nullptr; }

 private:
  Budget* budget_ = nullptr;
  Size size_ = 0;
};

// How much physical memory may be held at one location: a local limit here; leased_budget.hpp has
// what a broker of several processes leases.
class Budget {
 public:
  virtual ~Budget() = default;

  // OutOfMemory, with what was available, where it cannot be granted now.
  Result<Commitment> commit(Size size);

  // Memory that the program takes from the driver past us. It is there whether it fits or not, so
  // noting it cannot fail.
  virtual void note_native(Size size) = 0;
  virtual void forget_native(Size size) = 0;
  virtual Size native_bytes() const = 0;

  virtual Size available() const = 0;

 protected:
  virtual bool grant(Size size) = 0;
  virtual void take_back(Size size) = 0;
  // For a budget that is made of others.
  static bool grant_of(Budget& other, Size size) { return other.grant(size); }
  static void take_back_of(Budget& other, Size size) { other.take_back(size); }

 private:
  friend class Commitment;
};

// A limit within this process. Everything may be called from any thread.
class LocalBudget : public Budget {
 public:
  explicit LocalBudget(Size limit = unlimited) : limit_(limit) {}

  Size limit() const { return limit_.load(std::memory_order_relaxed); }
  // What is held already stays, even where it is more than that.
  void set_limit(Size limit) { limit_.store(limit, std::memory_order_relaxed); }

  Size committed_bytes() const;
  void note_native(Size size) override;
  void forget_native(Size size) override;
  Size native_bytes() const override { return native_.load(std::memory_order_relaxed); }
  Size available() const override;

 protected:
  bool grant(Size size) override;
  void take_back(Size size) override;

 private:
  std::atomic<Size> limit_;
  std::atomic<Size> held_{0};    // committed and native together: one number to compare and swap
  std::atomic<Size> native_{0};  // of which native
};

}  // namespace cuvmm
