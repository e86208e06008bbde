// SPDX-License-Identifier: Apache-2.0
#include "stream/gate.hpp"

#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <new>

#include "trace/futex.hpp"

namespace cuvmm {

// Where a thread says that it has passed. A record serves another thread when its own has ended.
struct alignas(64) Gate::Thread {
  std::atomic<bool> inside{false};
  std::atomic<bool> owned{true};
  Thread* next = nullptr;
};

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

std::atomic<Gate::Thread*> Gate::threads_{nullptr};

Gate::Gate() : has_membarrier_(membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0) {}

void Gate::end_of_thread(void* thread) {
  static_cast<Thread*>(thread)->inside.store(false);
  static_cast<Thread*>(thread)->owned.store(false);
}

Gate::Thread* Gate::this_thread() {
  [[gnu::tls_model("initial-exec")]] static thread_local Thread* mine = nullptr;
  if (mine != nullptr) return mine;
  static const pthread_key_t key = make_key(&Gate::end_of_thread);
  for (Thread* thread = threads_.load(); thread != nullptr; thread = thread->next) {
    bool free = false;
    if (!thread->owned.compare_exchange_strong(free, true)) continue;
    mine = thread;
    ::pthread_setspecific(key, mine);
    return mine;
  }
  auto* added = new (std::nothrow) Thread;
  if (added == nullptr) return nullptr;
  added->next = threads_.load();
  while (!threads_.compare_exchange_weak(added->next, added)) {
  }
  mine = added;
  ::pthread_setspecific(key, mine);
  return mine;
}

// Only this thread lives on, and none of the others is inside any more.
void Gate::forget_after_fork() {
  const Thread* mine = this_thread();
  for (Thread* thread = threads_.load(); thread != nullptr; thread = thread->next) {
    thread->inside.store(false);
    if (thread != mine) thread->owned.store(false);
  }
}

// Says "inside" first and looks at the gate second; who closes does it the other way round. The
// barrier between the two is made by who closes, in every thread at once, where the system can.
bool Gate::enter() {
  Thread* thread = this_thread();
  if (thread == nullptr || thread->inside.load(std::memory_order_relaxed)) return false;
  while (true) {
    thread->inside.store(true, std::memory_order_relaxed);
    if (has_membarrier_) {
      std::atomic_signal_fence(std::memory_order_seq_cst);
    } else {
      std::atomic_thread_fence(std::memory_order_seq_cst);
    }
    if (closed_.load(std::memory_order_acquire) == 0) return true;
    if (closer_.load(std::memory_order_acquire) == thread) return true;
    thread->inside.store(false, std::memory_order_release);
    wait_while(closed_, 1, std::chrono::seconds{1});
  }
}

void Gate::leave() {
  this_thread()->inside.store(false, std::memory_order_release);
}

bool Gate::close(std::uint64_t until) {
  while (!closing_.try_lock()) {
    if (now_ns() >= until) return false;
    ::usleep(rest);
  }
  closer_.store(this_thread());
  closed_.store(1);
  if (!has_membarrier_ || membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0) {
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  if (all_are_out(until)) return true;
  open();
  return false;
}

bool Gate::all_are_out(std::uint64_t until) {
  const Thread* mine = this_thread();
  for (Thread* thread = threads_.load(); thread != nullptr; thread = thread->next) {
    while (thread != mine && thread->inside.load(std::memory_order_acquire)) {
      if (now_ns() >= until) return false;
      ::usleep(rest);
    }
  }
  return true;
}

void Gate::open() {
  closer_.store(nullptr);
  closed_.store(0);
  wake_all(closed_);
  closing_.unlock();
}

}  // namespace cuvmm
