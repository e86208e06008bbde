// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

namespace cuvmm {

// A line of bits that threads set and read without a lock.
template <std::size_t Count>
class BitLine {
 public:
  static constexpr std::size_t none = ~std::size_t{0};

  bool is_set(std::size_t at) const {
    return (word(at).load(std::memory_order_acquire) & bit(at)) != 0;
  }
  void set(std::size_t at) {
    if (!is_set(at)) word(at).fetch_or(bit(at), std::memory_order_acq_rel);
  }
  // Bits [begin, end).
  void clear(std::size_t begin, std::size_t end) {
    while (begin < end) {
      const std::size_t shift = begin % 64;
      const std::size_t many = std::min<std::size_t>(64 - shift, end - begin);
      const std::uint64_t mask = (many == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << many) - 1)
                                 << shift;
      if ((word(begin).load(std::memory_order_relaxed) & mask) != 0) {
        word(begin).fetch_and(~mask, std::memory_order_acq_rel);
      }
      begin += many;
    }
  }
  // The last set bit at or before `at`; `none` if there is none.
  std::size_t last_before(std::size_t at) const {
    std::uint64_t keep = ~std::uint64_t{0} >> (63 - at % 64);
    for (std::size_t i = at / 64 + 1; i-- > 0; keep = ~std::uint64_t{0}) {
      const std::uint64_t bits = words_[i].load(std::memory_order_acquire) & keep;
      if (bits != 0) return i * 64 + 63 - static_cast<std::size_t>(std::countl_zero(bits));
    }
    return none;
  }

 private:
  static std::uint64_t bit(std::size_t at) { return std::uint64_t{1} << (at % 64); }
  std::atomic<std::uint64_t>& word(std::size_t at) { return words_[at / 64]; }
  const std::atomic<std::uint64_t>& word(std::size_t at) const { return words_[at / 64]; }

  std::array<std::atomic<std::uint64_t>, Count / 64> words_{};
};

}  // namespace cuvmm
