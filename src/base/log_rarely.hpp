// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/clock.hpp"
#include "base/log.hpp"

namespace cuvmm {

// Limits messages that other processes or the program can trigger at will to one per ten seconds.
class Rarely {
 public:
  static constexpr std::uint64_t between_us = 10'000'000;

  bool may_say(std::uint64_t now) {
    std::uint64_t next = next_us_.load(std::memory_order_relaxed);
    if (now >= next && next_us_.compare_exchange_strong(next, now + between_us)) return true;
    left_out_.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  // The number of lines suppressed since the last one written.
  unsigned left_out() { return left_out_.exchange(0, std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> next_us_{0};
  std::atomic<unsigned> left_out_{0};
};

// Like CUVMM_LOG, but at most once in ten seconds per call site.
#define CUVMM_LOG_RARELY(severity, ...)                                                        \
  do {                                                                                         \
    static constinit ::cuvmm::Rarely rarely_here;                                              \
    if (::cuvmm::is_logged(::cuvmm::Severity::severity) &&                                     \
        rarely_here.may_say(::cuvmm::now_us())) {                                              \
      ::cuvmm::detail::write_log(::cuvmm::Severity::severity, __VA_ARGS__);                    \
      if (const unsigned left_out_here = rarely_here.left_out()) {                             \
        ::cuvmm::detail::write_log(::cuvmm::Severity::severity, "%u such lines were left out", \
                                   left_out_here);                                             \
      }                                                                                        \
    }                                                                                          \
  } while (false)

}  // namespace cuvmm
