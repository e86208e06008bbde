// SPDX-License-Identifier: Apache-2.0
// The rows of driver_api.def in the form that the simulated driver needs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cuvmm::sim {

enum class Row : std::uint16_t {
#define CUVMM_API(name, symbol, since, until, flavours, effect, need) symbol,
#define CUVMM_API_OLD CUVMM_API
#include "driver/driver_api.def"
#undef CUVMM_API
#undef CUVMM_API_OLD
};

inline constexpr std::size_t row_count = 0
#define CUVMM_API(name, symbol, since, until, flavours, effect, need) +1
#define CUVMM_API_OLD CUVMM_API
#include "driver/driver_api.def"
#undef CUVMM_API
#undef CUVMM_API_OLD
    ;

// Whether stream 0 means the legacy stream or the calling thread's own.
enum class Flavour : std::uint8_t { Legacy, PerThread };

// One function that cuGetProcAddress can return to a program.
struct Entrance {
  const char* name;
  const char* symbol;
  int since;
  int until;
  void* legacy;
  void* per_thread;  // nullptr if there is no such form
};

inline constexpr int Now = 1 << 30;

const char* name_of(Row row);  // the API name: "cuMemAlloc"
const Entrance* entrances();   // sorted by name, then by version
std::size_t entrance_count();

}  // namespace cuvmm::sim
