// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "base/size.hpp"
#include "driver/cuda.hpp"

namespace cuvmm {

// When each granule of addresses was last named to the driver: by copies, sets and the words of
// kernel parameters. Addresses named by graphs, or stored in memory, are not seen, so this is only
// a hint. Noting a use takes no lock.
class LastUses {
 public:
  // Advanced by the reader; 0: never.
  using Moment = std::uint32_t;

  LastUses();
  ~LastUses();
  LastUses(const LastUses&) = delete;
  LastUses& operator=(const LastUses&) = delete;

  // Where the program's calls note the addresses that they name; nullptr if there is no reader.
  static LastUses* watched() { return watched_.load(std::memory_order_acquire); }
  // There is one per process, and it lives as long as the process.
  static void watch(LastUses* uses) { watched_.store(uses, std::memory_order_release); }

  // Uses of these addresses are noted from now on; uses of any others are ignored.
  void cover(CUdeviceptr address, Size size);
  void note(std::uint64_t word) {
    if (const auto moment = moment_of(word)) {
      moment->store(now_.load(std::memory_order_relaxed), std::memory_order_relaxed);
    }
  }

  // Notes work whose memory is unknown.
  void note_unseen() { unseen_.store(now(), std::memory_order_relaxed); }
  Moment last_unseen() const { return unseen_.load(std::memory_order_relaxed); }

  // The last moment at which any granule of the range was named.
  Moment last_within(CUdeviceptr address, Size size) const;
  Moment now() const { return now_.load(std::memory_order_relaxed); }
  // Called by one thread at a time.
  void begin_next_moment() { now_.fetch_add(1, std::memory_order_relaxed); }

 private:
  static constexpr unsigned granule_bits = 21;
  static constexpr unsigned span_bits = granule_bits + 13;
  static constexpr unsigned address_bits = 48;
  static constexpr std::size_t granules_a_span = std::size_t{1} << (span_bits - granule_bits);
  static constexpr std::size_t span_count = std::size_t{1} << (address_bits - span_bits);

  struct Span {
    std::array<std::atomic<Moment>, granules_a_span> moments{};
  };

  std::atomic<Moment>* moment_of(std::uint64_t address) const {
    if (address >> address_bits != 0) return nullptr;
    Span* const span = spans_[address >> span_bits].load(std::memory_order_acquire);
    if (span == nullptr) return nullptr;
    return &span->moments[(address >> granule_bits) % granules_a_span];
  }

  static std::atomic<LastUses*> watched_;

  std::unique_ptr<std::atomic<Span*>[]> spans_;  // only added to
  std::atomic<Moment> now_{1};
  std::atomic<Moment> unseen_{0};
};

}  // namespace cuvmm
