// SPDX-License-Identifier: Apache-2.0
// The processor's register for the rounding and flushing of floating point operations.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace cuvmm::sim {

#if defined(__x86_64__)

constexpr std::uint32_t usual_float_mode = 0x1f80;  // no exceptions, rounding to nearest
constexpr std::uint32_t rounds_down = 0x2000;
constexpr std::uint32_t rounds_up = 0x4000;
constexpr std::uint32_t rounds_to_zero = 0x6000;
constexpr std::uint32_t flushes = 0x8040;  // subnormal operands and results become zero

inline std::uint32_t float_mode() {
  return _mm_getcsr();
}
inline void set_float_mode(std::uint32_t mode) {
  _mm_setcsr(mode);
}

#elif defined(__aarch64__)

constexpr std::uint32_t usual_float_mode = 0;
constexpr std::uint32_t rounds_up = 1U << 22;
constexpr std::uint32_t rounds_down = 2U << 22;
constexpr std::uint32_t rounds_to_zero = 3U << 22;
constexpr std::uint32_t flushes = 1U << 24;

inline std::uint32_t float_mode() {
  std::uint64_t mode = 0;
  __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
  return static_cast<std::uint32_t>(mode);
}
inline void set_float_mode(std::uint32_t mode) {
  __asm__ volatile("msr fpcr, %0" ::"r"(std::uint64_t{mode}) : "memory");
}

#endif

}  // namespace cuvmm::sim
