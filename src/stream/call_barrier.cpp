// SPDX-License-Identifier: Apache-2.0
#include "stream/call_barrier.hpp"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <new>

#include "base/clock.hpp"
#include "base/not_cancelled.hpp"
#include "base/thread_key.hpp"

namespace cuvmm {

namespace {

constexpr useconds_t rest = 20;

int membarrier(int command) {
  return static_cast<int>(::syscall(SYS_membarrier, command, 0, 0));
}

}  // namespace

std::atomic<CallBarrier::Thread*> CallBarrier::threads_{nullptr};
std::atomic<std::uint32_t> CallBarrier::has_membarrier_{0};
std::atomic<bool> CallBarrier::has_untracked_threads_{false};

CallBarrier::CallBarrier(Of which) : which_(static_cast<std::size_t>(which)) {
  has_membarrier_.store(membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0 ? 1 : 0);
}

void CallBarrier::Thread::note_owner() {
  id.store(static_cast<pid_t>(::syscall(SYS_gettid)));
  call.store(no_call);
}

void CallBarrier::Thread::come_out_of_all() {
  for (auto& one : steps) {
    if (is_inside(one.load())) step<std::memory_order_seq_cst>(one);
  }
  for (auto& one : has_stepped_out) one.store(false);
}

void CallBarrier::end_of_thread(void* thread) {
  mine_ = nullptr;
  static_cast<Thread*>(thread)->come_out_of_all();
  static_cast<Thread*>(thread)->owned.store(false);
}

[[gnu::noinline]] CallBarrier::Thread* CallBarrier::register_thread() {
  static constinit ThreadKey end{&CallBarrier::end_of_thread};
  for (Thread* thread = threads_.load(); thread != nullptr; thread = thread->next) {
    bool free = false;
    if (!thread->owned.compare_exchange_strong(free, true)) continue;
    thread->note_owner();
    mine_ = thread;
    end.set(mine_);
    return thread;
  }
  auto* added = new (std::nothrow) Thread;
  if (added == nullptr) {
    has_untracked_threads_.store(true);
    return nullptr;
  }
  added->note_owner();
  added->next = threads_.load();
  while (!threads_.compare_exchange_weak(added->next, added)) {
  }
  mine_ = added;
  end.set(mine_);
  return added;
}

// Only the calling thread survives a fork, so no other thread is inside a barrier. This one may be,
// and leaves as usual.
void CallBarrier::forget_after_fork() {
  for (Thread* thread = threads_.load(); thread != nullptr; thread = thread->next) {
    if (thread == mine_) {
      thread->note_owner();
      continue;
    }
    thread->come_out_of_all();
    thread->owned.store(false);
  }
}

[[gnu::noinline]] std::atomic<std::uint32_t>* CallBarrier::wait_to_enter(
    const Thread& thread, std::atomic<std::uint32_t>& steps) {
  while (shut_.load(std::memory_order_acquire) != 0 && !is_abandoned()) {
    if (exempt_.load(std::memory_order_acquire) == &thread) break;
    step<std::memory_order_release>(steps);
    waiting_.fetch_add(1, std::memory_order_relaxed);
    wait_while(shut_, 1, std::chrono::seconds{1});
    waiting_.fetch_sub(1, std::memory_order_relaxed);
    step_in(steps);
  }
  return &steps;
}

CallBarrier::OutsideBarrier::OutsideBarrier(CallBarrier& barrier) : barrier_(barrier) {
  if (mine_ == nullptr) return;
  std::atomic<std::uint32_t>& steps = mine_->steps[barrier.which_];
  was_inside_ = is_inside(steps.load(std::memory_order_relaxed));
  if (!was_inside_) return;
  mine_->has_stepped_out[barrier.which_].store(true);
  step<std::memory_order_release>(steps);
}

// Reenters, so that the outer pass can end normally.
CallBarrier::OutsideBarrier::~OutsideBarrier() {
  if (!was_inside_) return;
  barrier_.enter();
  mine_->has_stepped_out[barrier_.which_].store(false);
}

std::optional<std::uint64_t> CallBarrier::passes() const {
  std::uint64_t sum = 0;
  for (const Thread* thread = threads_.load(); thread != nullptr; thread = thread->next) {
    const std::uint32_t steps = thread->steps[which_].load(std::memory_order_relaxed);
    if (is_inside(steps) || thread->has_stepped_out[which_].load()) return std::nullopt;
    sum += steps;
  }
  return sum;
}

bool CallBarrier::shut(std::uint64_t until, Exempt exempt) {
  if (!begin_shut(exempt)) return false;
  if (has_drained(until)) return true;
  open();
  return false;
}

bool CallBarrier::begin_shut(Exempt exempt) {
  exempt_.store(exempt == Exempt::ThisThread ? this_thread() : nullptr);
  shut_.store(1);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (is_seen_by_all()) return true;
  open();
  return false;
}

// membarrier() starts to fail if the program installs a seccomp filter that blocks it. From then
// on, every entering thread issues its own fence, but a thread that is entering right now may not
// know that yet.
bool CallBarrier::is_seen_by_all() {
  if (!has_membarrier_.load() || membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0) return true;
  has_membarrier_.store(0);
  return false;
}

bool CallBarrier::has_drained(std::uint64_t until) const {
  const Thread* exempt = exempt_.load();
  for (Thread* thread = threads_.load(); thread != nullptr; thread = thread->next) {
    const std::atomic<std::uint32_t>& steps = thread->steps[which_];
    while (thread != exempt && is_inside(steps.load(std::memory_order_acquire))) {
      if (now_ns() >= until) return false;
      rest_us(rest);
    }
  }
  return true;
}

std::optional<CallBarrier::Insider> CallBarrier::find_caller_inside() const {
  const Thread* const exempt = exempt_.load();
  for (const Thread* thread = threads_.load(); thread != nullptr; thread = thread->next) {
    if (thread == exempt || !is_inside(thread->steps[which_].load(std::memory_order_acquire))) {
      continue;
    }
    Insider insider{.thread = thread->id.load(), .call = thread->call.load()};
    if (insider.call == no_call) insider.call.reset();
    return insider;
  }
  return std::nullopt;
}

void CallBarrier::open() {
  exempt_.store(nullptr);
  shut_.store(0);
  wake_all(shut_);
}

void CallBarrier::abandon(CUresult with) {
  abandoned_with_.store(with);
  wake_all(shut_);
}

// Skips the calling thread, which may be inside too but no longer refers to the object.
std::optional<CallBarrier::GracePeriod> CallBarrier::GracePeriod::begin() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!is_seen_by_all() || has_untracked_threads_.load()) return std::nullopt;
  GracePeriod period;
  const Thread* const here = mine_;
  for (const Thread* thread = threads_.load(); thread != nullptr; thread = thread->next) {
    if (thread == here) continue;
    for (const Of kind : {Of::Calls, Of::Work, Of::Questions}) {
      const auto& steps = thread->steps[static_cast<std::size_t>(kind)];
      const std::uint32_t now = steps.load(std::memory_order_acquire);
      if (is_inside(now)) period.inside_.push_back({&steps, now});
    }
  }
  return period;
}

bool CallBarrier::GracePeriod::is_over() const {
  return std::all_of(inside_.begin(), inside_.end(), [](const Seen& seen) {
    return seen.steps->load(std::memory_order_acquire) != seen.were;
  });
}

}  // namespace cuvmm
