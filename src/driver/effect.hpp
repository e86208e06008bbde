// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace cuvmm {

// What a driver call may do to work and memory that other code still depends on. A subsystem with
// something pending (a deferred copy, a skipped wait, a queue) decides by these flags alone.
enum class Effect : std::uint8_t {
  Neutral = 0,        // queries or prepares; cannot affect pending work
  Submits = 1 << 0,   // gives the device work, or may make the driver do so
  Reads = 1 << 1,     // may read device memory, now or when the work runs
  Writes = 1 << 2,    // may write device memory, now or when the work runs
  Waits = 1 << 3,     // waits for work, or reveals whether it is done
  Destroys = 1 << 4,  // ends something that pending work may be using
  Exposes = 1 << 5,   // lets an address or its memory be used in ways that cuvmm does not see
};

constexpr Effect operator|(Effect a, Effect b) {
  return static_cast<Effect>(static_cast<std::uint8_t>(a) | static_cast<std::uint8_t>(b));
}
constexpr bool has(Effect all, Effect one) {
  return (static_cast<std::uint8_t>(all) & static_cast<std::uint8_t>(one)) != 0;
}

// Whether the call may cause memory to be touched.
constexpr bool gives_work(Effect effect) {
  return has(effect, Effect::Submits | Effect::Reads | Effect::Writes);
}

}  // namespace cuvmm
