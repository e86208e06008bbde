// SPDX-License-Identifier: Apache-2.0
#include "stream/captures.hpp"

#include <sched.h>

#include <algorithm>

#include "base/clock.hpp"

namespace cuvmm {
namespace {

// After this time, the calls under CaptureBlock have reached the driver, even if one still waits
// for work there; nothing reports that directly. On a busy machine, elapsed time proves little
// because the other thread may not have been scheduled. So this thread's own CPU time counts as
// well: while it ran, another runnable thread ran too.
constexpr std::uint64_t longest_hold_ns = 100'000'000;
constexpr std::uint64_t longest_hold_run_ns = 20'000'000;
constexpr std::uint64_t last_resort_ns = 5'000'000'000;

std::uint64_t run_ns() {
  timespec run;
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &run);
  return static_cast<std::uint64_t>(run.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(run.tv_nsec);
}

}  // namespace

std::optional<Captures::Origin> Captures::oldest() const {
  const Holding holding{lock_};
  const auto found =
      std::find_if(all_.begin(), all_.end(), [](const Live& one) { return one.endings == 0; });
  return found != all_.end() ? std::optional{found->origin} : std::nullopt;
}

std::uint64_t Captures::began(const Origin& origin) {
  ever_.store(true, std::memory_order_release);
  std::uint64_t number = 0;
  {
    const Holding holding{lock_};
    number = ++last_number_;
    all_.push_back({.number = number, .origin = origin});
  }
  live_.fetch_add(1);
  if (held_off_.load() != 0) wait_for_blocking_calls();
  return number;
}

template <class Which>
void Captures::forget(Which which) {
  const auto gone = std::erase_if(all_, which);
  live_.fetch_sub(static_cast<int>(gone), std::memory_order_acq_rel);
}

void Captures::never_began(std::uint64_t number) {
  const Holding holding{lock_};
  forget([&](const Live& one) { return one.number == number; });
}

// The newest, since an older one may have begun on a stream that has ended and whose handle this
// stream has now.
void Captures::ended(const Origin& origin) {
  const Holding holding{lock_};
  const auto found = std::find_if(all_.rbegin(), all_.rend(),
                                  [&](const Live& one) { return one.origin.is(origin); });
  if (found == all_.rend()) return;
  forget([number = found->number](const Live& one) { return one.number == number; });
}

template <class Which>
void Captures::Ending::add(Which which) {
  const Holding holding{captures_.lock_};
  for (Live& one : captures_.all_) {
    if (!which(one.origin)) continue;
    ++one.endings;
    numbers_.push_back(one.number);
  }
}

Captures::Ending::Ending(Captures& captures, CUstream stream) : captures_(captures) {
  if (!captures_.any()) return;
  add([&](const Origin& origin) { return origin.is({.handle = stream}); });
}

Captures::Ending::Ending(Captures& captures, CUcontext context) : captures_(captures) {
  if (!captures_.any() || context == nullptr) return;
  add([&](const Origin& origin) { return origin.context == context; });
}

bool Captures::Ending::has(const Live& capture) const {
  return std::find(numbers_.begin(), numbers_.end(), capture.number) != numbers_.end();
}

Captures::Ending::~Ending() {
  if (numbers_.empty()) return;
  const Holding holding{captures_.lock_};
  for (Live& one : captures_.all_) {
    if (has(one)) --one.endings;
  }
}

void Captures::Ending::is_over() {
  if (numbers_.empty()) return;
  const Holding holding{captures_.lock_};
  captures_.forget([this](const Live& one) { return has(one); });
}

void Captures::wait_for_blocking_calls() const {
  const std::uint64_t began = now_ns();
  const std::uint64_t run_before = run_ns();
  while (held_off_.load() != 0) {
    const std::uint64_t passed = now_ns() - began;
    if (passed >= last_resort_ns) return;
    if (passed >= longest_hold_ns && run_ns() - run_before >= longest_hold_run_ns) return;
    ::sched_yield();
  }
}

}  // namespace cuvmm
