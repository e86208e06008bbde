// SPDX-License-Identifier: Apache-2.0
#include "trace/stacks/sample_rate.hpp"

#include <algorithm>

namespace cuvmm::stacks {
namespace {

constexpr std::uint64_t part_of_time = 100;          // at most one in a hundred
constexpr std::uint64_t least_to_judge = 2'000'000;  // ns of samples
constexpr std::uint64_t window = 1'000'000'000;      // ns
constexpr Size largest_interval = 1 * GiB;

std::uint64_t next_random(std::uint64_t& state) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

}  // namespace

Size SampleRate::weight_of(Size size, Thread& thread) const {
  const Size interval = this->interval();
  if (interval == 0 || size == 0) return 0;
  if (size >= interval) return size;
  if (thread.random == 0) {
    thread.random = reinterpret_cast<std::uint64_t>(&thread) | 1;
    thread.left = static_cast<std::int64_t>(next_random(thread.random) % interval);
  }
  thread.left -= static_cast<std::int64_t>(size);
  Size weight = 0;
  // Random distances, so that a program that repeats itself does not always hit the same place.
  while (thread.left < 0) {
    weight += interval;
    thread.left +=
        static_cast<std::int64_t>(interval / 2 + next_random(thread.random) % (interval + 1));
  }
  return weight;
}

void SampleRate::spent(std::uint64_t began, std::uint64_t ended) {
  const Size asked = asked_.load(std::memory_order_relaxed);
  if (asked <= 1) return;
  std::uint64_t nobody = 0;
  since_.compare_exchange_strong(nobody, began, std::memory_order_relaxed);
  const std::uint64_t sum =
      spent_.fetch_add(ended - began, std::memory_order_relaxed) + ended - began;
  const std::uint64_t since = since_.load(std::memory_order_relaxed);
  const std::uint64_t passed = ended > since ? ended - since : 0;
  const bool is_too_much = sum > least_to_judge && sum > passed / part_of_time;
  if (!is_too_much && passed < window) return;
  const Size interval = this->interval();
  if (is_too_much) {
    interval_.store(std::min(2 * interval, std::max(asked, largest_interval)),
                    std::memory_order_relaxed);
  } else if (sum < passed / (4 * part_of_time)) {
    interval_.store(std::max(interval / 2, asked), std::memory_order_relaxed);
  }
  spent_.store(0, std::memory_order_relaxed);
  since_.store(ended, std::memory_order_relaxed);
}

}  // namespace cuvmm::stacks
