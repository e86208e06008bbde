// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <shared_mutex>
#include <string>

namespace cuvmm {

// Every lock of the project, in the order in which locks may be taken: a thread that holds one may
// take only later ones, and no two of the same order. On a violation, debug builds abort and name
// both locks. The list is base/lock_order.def.
enum class LockOrder : std::uint8_t {
#define CUVMM_LOCK(name, guards) name,
#include "base/lock_order.def"
#undef CUVMM_LOCK
};

const char* name_of(LockOrder order);

// The order as a Markdown table, as it appears in docs/internals/locking.md.
std::string describe_locks();

namespace detail {
#ifndef NDEBUG
void check_order_before_lock(LockOrder order);
void remember_lock(LockOrder order);
void forget_lock(LockOrder order);
#else
inline void check_order_before_lock(LockOrder) {}
inline void remember_lock(LockOrder) {}
inline void forget_lock(LockOrder) {}
#endif

template <class Mutex>
class OrderedLock {
 public:
  explicit constexpr OrderedLock(LockOrder order) : order_(order) {}
  OrderedLock(const OrderedLock&) = delete;
  OrderedLock& operator=(const OrderedLock&) = delete;

  void lock() {
    check_order_before_lock(order_);
    mutex_.lock();
    remember_lock(order_);
  }
  bool try_lock() {
    if (!mutex_.try_lock()) return false;
    remember_lock(order_);
    return true;
  }
  void unlock() {
    forget_lock(order_);
    mutex_.unlock();
  }
  void lock_shared() requires requires(Mutex& m) { m.lock_shared(); }
  {
    check_order_before_lock(order_);
    mutex_.lock_shared();
    remember_lock(order_);
  }
  void unlock_shared() requires requires(Mutex& m) { m.unlock_shared(); }
  {
    forget_lock(order_);
    mutex_.unlock_shared();
  }

 private:
  Mutex mutex_;
  const LockOrder order_;
};
}  // namespace detail

using Lock = detail::OrderedLock<std::mutex>;
using SharedLock = detail::OrderedLock<std::shared_mutex>;  // many readers or one writer
using Holding = std::unique_lock<Lock>;
using Writing = std::unique_lock<SharedLock>;
using Reading = std::shared_lock<SharedLock>;

// A condition variable to be waited on under a Lock.
using Condition = std::condition_variable_any;

}  // namespace cuvmm
