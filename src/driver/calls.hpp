// SPDX-License-Identifier: Apache-2.0
// driver_api.def as C++: one Call per row, and the row's properties.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "driver/effect.hpp"

namespace cuvmm {

// One row of driver_api.def, named by the ABI symbol, which is unique: Call::cuMemAlloc_v2.
enum class Call : std::uint16_t {
#define CUVMM_API(name, symbol, since, until, flavours, effect, need) symbol,
#define CUVMM_API_OLD CUVMM_API
#include "driver/driver_api.def"
#undef CUVMM_API
#undef CUVMM_API_OLD
};

enum class Need : std::uint8_t { Required, Optional };

// The form that a call has besides the one in which stream 0 is the legacy stream.
enum class Flavours : std::uint8_t {
  Legacy,         // no other form
  LegacyAndPtds,  // symbol_ptds: the implicit stream is the thread's default stream
  LegacyAndPtsz,  // symbol_ptsz: stream 0 is the thread's default stream
};

struct CallInfo {
  std::string_view name;
  const char* symbol;
  const char* per_thread_symbol;  // nullptr if there is none
  int since;
  int until;  // Now, or the version that replaced this signature
  Flavours flavours;
  Effect effect;
  Need need;
};

inline constexpr int Now = 1 << 30;

namespace detail {
constexpr const char* per_thread_symbol(Flavours flavours, const char* ptds, const char* ptsz) {
  if (flavours == Flavours::LegacyAndPtds) return ptds;
  return flavours == Flavours::LegacyAndPtsz ? ptsz : nullptr;
}

using enum Effect;
using enum Flavours;
using enum Need;
inline constexpr auto calls = std::to_array<CallInfo>({
#define CUVMM_API(name, symbol, since, until, flavours, effect, need)                      \
  CallInfo{#name,  #symbol, per_thread_symbol(flavours, #symbol "_ptds", #symbol "_ptsz"), \
           since,  until,   flavours,                                                      \
           effect, need},
#define CUVMM_API_OLD CUVMM_API
#include "driver/driver_api.def"
#undef CUVMM_API
#undef CUVMM_API_OLD
});
}  // namespace detail

inline constexpr std::size_t call_count = detail::calls.size();

constexpr const CallInfo& info(Call call) {
  return detail::calls[static_cast<std::size_t>(call)];
}
constexpr const std::array<CallInfo, call_count>& all_calls() {
  return detail::calls;
}

}  // namespace cuvmm
