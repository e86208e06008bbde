// SPDX-License-Identifier: Apache-2.0
#include "stream/threshold.hpp"

#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <new>

#include "base/clock.hpp"

namespace cuvmm {

namespace {

constexpr useconds_t rest = 20;

int membarrier(int command) {
  return static_cast<int>(::syscall(SYS_membarrier, command, 0, 0));
}

pthread_key_t make_key(void (*end_of_thread)(void*)) {
  pthread_key_t key = 0;
  return ::pthread_key_create(&key, end_of_thread) == 0 ? key : ~pthread_key_t{0};
}

}  // namespace

std::atomic<Threshold::Thread*> Threshold::threads_{nullptr};

Threshold::Threshold(Of which)
    : which_(static_cast<std::size_t>(which)),
      has_membarrier_(membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0) {}

void Threshold::Thread::come_out_of_all() {
  for (auto& one : inside) one.store(false);
}

void Threshold::end_of_thread(void* thread) {
  mine_ = nullptr;
  static_cast<Thread*>(thread)->come_out_of_all();
  static_cast<Thread*>(thread)->owned.store(false);
}

[[gnu::noinline]] Threshold::Thread* Threshold::register_thread() {
  static const pthread_key_t key = make_key(&Threshold::end_of_thread);
  for (Thread* thread = threads_.load(); thread != nullptr; thread = thread->next) {
    bool free = false;
    if (!thread->owned.compare_exchange_strong(free, true)) continue;
    mine_ = thread;
    ::pthread_setspecific(key, mine_);
    return thread;
  }
  auto* added = new (std::nothrow) Thread;
  if (added == nullptr) return nullptr;
  added->next = threads_.load();
  while (!threads_.compare_exchange_weak(added->next, added)) {
  }
  mine_ = added;
  ::pthread_setspecific(key, mine_);
  return added;
}

// Only this thread lives on, and none of the others has passed any more.
void Threshold::forget_after_fork() {
  const Thread* const here = this_thread();
  for (Thread* thread = threads_.load(); thread != nullptr; thread = thread->next) {
    thread->come_out_of_all();
    if (thread != here) thread->owned.store(false);
  }
}

[[gnu::noinline]] std::atomic<bool>* Threshold::wait_to_enter(const Thread& thread,
                                                              std::atomic<bool>& is_inside) {
  while (shut_.load(std::memory_order_acquire) != 0) {
    if (exempt_.load(std::memory_order_acquire) == &thread) break;
    is_inside.store(false, std::memory_order_release);
    wait_while(shut_, 1, std::chrono::seconds{1});
    tell(is_inside);
  }
  return &is_inside;
}

bool Threshold::shut(std::uint64_t until, Exempt exempt) {
  exempt_.store(exempt == Exempt::ThisThread ? this_thread() : nullptr);
  shut_.store(1);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (is_seen_by_all() && all_are_out(until)) return true;
  open();
  return false;
}

// A program may have refused itself the call since (seccomp). Then every thread makes a barrier of
// its own from here on; but one that enters just now may not know it yet.
bool Threshold::is_seen_by_all() {
  if (!has_membarrier_.load() || membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0) return true;
  has_membarrier_.store(false);
  return false;
}

bool Threshold::all_are_out(std::uint64_t until) const {
  const Thread* exempt = exempt_.load();
  for (Thread* thread = threads_.load(); thread != nullptr; thread = thread->next) {
    const std::atomic<bool>& inside = thread->inside[which_];
    while (thread != exempt && inside.load(std::memory_order_acquire)) {
      if (now_ns() >= until) return false;
      ::usleep(rest);
    }
  }
  return true;
}

void Threshold::open() {
  exempt_.store(nullptr);
  shut_.store(0);
  wake_all(shut_);
}

}  // namespace cuvmm
