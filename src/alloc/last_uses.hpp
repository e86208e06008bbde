// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "base/size.hpp"
#include "driver/cuda.hpp"

namespace cuvmm {

// When addresses were last named to the driver, a granule of them at a time: by copies, sets and
// the words of kernels' parameters. What graphs and memory itself name is not seen, so this only
// guides. Every thread notes without a lock.
class LastUses {
 public:
  // Counted by who looks; 0: never.
  using Moment = std::uint32_t;

  LastUses();
  ~LastUses();
  LastUses(const LastUses&) = delete;
  LastUses& operator=(const LastUses&) = delete;

  // Where the program's calls note what they name; nullptr while nobody wants to know.
  static LastUses* watched() { return watched_.load(std::memory_order_acquire); }
  // One of a process, which lives as long as that.
  static void watch(LastUses* uses) { watched_.store(uses, std::memory_order_release); }

  // What is named there is noted from here on; elsewhere it is not.
  void cover(CUdeviceptr address, Size size);
  void note(std::uint64_t word) {
    if (const auto moment = moment_of(word)) {
      moment->store(now_.load(std::memory_order_relaxed), std::memory_order_relaxed);
    }
  }

  // Work whose memory is not known.
  void note_unseen() { unseen_.store(now(), std::memory_order_relaxed); }
  Moment last_unseen() const { return unseen_.load(std::memory_order_relaxed); }

  // The last that any granule of it was named at.
  Moment last_within(CUdeviceptr address, Size size) const;
  Moment now() const { return now_.load(std::memory_order_relaxed); }
  // By one at a time.
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
