// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace cuvmm {

// Calls a function at the end of each thread that has set a value. The pthread key behind it is
// created on first use, without a lock that a forked child could inherit.
class ThreadKey {
 public:
  using AtEnd = void (*)(void* value);
  explicit constexpr ThreadKey(AtEnd at_end) : at_end_(at_end) {}
  ThreadKey(const ThreadKey&) = delete;
  ThreadKey& operator=(const ThreadKey&) = delete;

  // The calling thread's end calls the function with this value. Returns false if the system has no
  // more keys or memory: then it does not.
  bool set(void* value) {
    std::uint64_t key = key_.load(std::memory_order_acquire);
    if (key == none) key = create();
    return key != none && ::pthread_setspecific(static_cast<pthread_key_t>(key), value) == 0;
  }
  // The calling thread's end no longer calls the function.
  void clear() {
    const std::uint64_t key = key_.load(std::memory_order_acquire);
    if (key != none) ::pthread_setspecific(static_cast<pthread_key_t>(key), nullptr);
  }

 private:
  static constexpr std::uint64_t none = ~std::uint64_t{0};
  static_assert(sizeof(pthread_key_t) < sizeof none);

  // Threads that come first at the same time each create a key, and all but one are deleted.
  std::uint64_t create() {
    pthread_key_t mine = 0;
    if (::pthread_key_create(&mine, at_end_) != 0) return key_.load(std::memory_order_acquire);
    std::uint64_t others = none;
    if (key_.compare_exchange_strong(others, mine, std::memory_order_acq_rel)) return mine;
    ::pthread_key_delete(mine);
    return others;
  }

  const AtEnd at_end_;
  std::atomic<std::uint64_t> key_{none};
};

}  // namespace cuvmm
