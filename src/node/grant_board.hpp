// SPDX-License-Identifier: Apache-2.0
// What the node's service and one client share of their memory: who may launch, and who wants to.
// The service makes it and hands it over with TimeBoard; both sides map it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "node/message.hpp"
#include "node/time_policy.hpp"

namespace cuvmm::node {

// A grant as a word that changes with each decision: the grant below, a number above. All zero is
// Open, so a board that nobody writes stops nobody.
constexpr std::uint32_t grant_bits = 2;
constexpr std::uint32_t grant_word(std::uint32_t number, TimeGrant grant) {
  const std::uint32_t low = grant == TimeGrant::Open ? 0 : grant == TimeGrant::None ? 1 : 2;
  return (number << grant_bits) | low;
}
constexpr TimeGrant grant_in(std::uint32_t word) {
  const std::uint32_t low = word & ((1U << grant_bits) - 1);
  return low == 0 ? TimeGrant::Open : low == 1 ? TimeGrant::None : TimeGrant::Held;
}

struct alignas(64) GrantWords {
  // Written by the service.
  PlaceUuid device{};                    // before the board is handed over
  std::atomic<std::uint32_t> grant{0};   // a futex of the threads that wait for it
  std::atomic<std::uint32_t> window{0};  // microseconds of device time in flight; 0: no bound
  // Written by the client, which then says TimeNews.
  std::atomic<std::uint32_t> wants{0};               // it has work in flight or waiting
  std::atomic<std::uint32_t> drained{0};             // the word since which nothing is in flight
  std::atomic<std::uint64_t> in_flight_until_ns{0};  // as far as it knows
};

struct GrantBoard {
  static constexpr std::size_t most_devices = 16;

  std::atomic<std::uint32_t> changes{0};  // of any grant: a futex of the client's own thread
  std::uint32_t for_later = 0;
  std::atomic<std::uint64_t> beat_ns{0};  // when the service was last at work
  std::array<GrantWords, most_devices> devices;
};
static_assert(sizeof(GrantBoard) <= 4096 && std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace cuvmm::node
