// SPDX-License-Identifier: Apache-2.0
// The memory that the node service shares with one client: who may launch, and who wants to. The
// service creates it and sends it with TimeBoard; both sides map it. Clients of lower priority map
// it too, but cannot write it (ForegroundBoard).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "node/message.hpp"
#include "node/time_policy.hpp"

namespace cuvmm::node {

// A grant packed into a word that changes with every decision: the grant in the low bits, a
// sequence number above. Zero means Open, so a board that nobody writes blocks nobody.
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
  PlaceUuid device{};                    // before the board is sent
  std::atomic<std::uint32_t> grant{0};   // a futex for threads that wait for a grant
  std::atomic<std::uint32_t> window{0};  // microseconds of device time in flight; 0: no bound
  // Written by the client, which then sends TimeNews.
  std::atomic<std::uint32_t> wants{0};               // it has work in flight or waiting
  std::atomic<std::uint32_t> drained{0};             // the last revoking word whose work has ended
  std::atomic<std::uint64_t> in_flight_until_ns{0};  // the client's estimate
  // Written by the service: the ForegroundBoards whose `wants` the client heeds during this grant,
  // a bit for each slot.
  std::atomic<std::uint32_t> yields_to{0};
};
// Clients and services of different versions share boards: new words come last.
static_assert(offsetof(GrantWords, wants) == 24 && offsetof(GrantWords, in_flight_until_ns) == 32 &&
              offsetof(GrantWords, yields_to) == 40 && sizeof(GrantWords) == 64);

struct GrantBoard {
  static constexpr std::size_t most_devices = 16;
  static constexpr std::uint32_t most_foregrounds = 8;

  std::atomic<std::uint32_t> changes{0};  // of any grant: a futex for the client's own thread
  // At the last heartbeat, the client had no time left under its cap. Older services write nothing.
  std::atomic<std::uint32_t> is_over_cap{0};
  std::atomic<std::uint64_t> beat_ns{0};  // the service's heartbeat
  std::array<GrantWords, most_devices> devices;
};
static_assert(sizeof(GrantBoard) <= 4096 && std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace cuvmm::node
