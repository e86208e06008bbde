// SPDX-License-Identifier: Apache-2.0
// The symbols of libcuda.so.1 and the table behind cuGetProcAddress, generated from driver_api.def
// and not_hooked.def.
#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>

#include "base/made_once.hpp"
#include "base/processor.h"
#include "sim/bodies.hpp"
#include "sim/entry.hpp"
#include "sim/rows.hpp"

namespace cuvmm::sim {
namespace {

template <Row row, auto* body>
struct Door;

template <Row row, class... Arguments, CUresult (*body)(Arguments...)>
struct Door<row, body> {
  template <Flavour flavour>
  static CUresult call(Arguments... arguments) {
    const Entry entry{row, flavour};
    if (entry.answer() != CUDA_SUCCESS) return entry.answer();
    // A row without a body is an undefined weak symbol.
    if (body == nullptr) return lacking(entry_symbol());
    return body(arguments...);
  }
  static const char* entry_symbol();
};

enum class Unsimulated : std::uint16_t {
#define CUVMM_NOT_HOOKED(name, symbol, since, until, flavours, reason) symbol,
#include "driver/not_hooked.def"
#undef CUVMM_NOT_HOOKED
};

constexpr const char* unsimulated_symbols[] = {
#define CUVMM_NOT_HOOKED(name, symbol, since, until, flavours, reason) #symbol,
#include "driver/not_hooked.def"
#undef CUVMM_NOT_HOOKED
};

constexpr const char* row_symbols[] = {
#define CUVMM_API(name, symbol, since, until, flavours, effect, need) #symbol,
#define CUVMM_API_OLD CUVMM_API
#include "driver/driver_api.def"
#undef CUVMM_API
#undef CUVMM_API_OLD
};

constexpr const char* row_names[] = {
#define CUVMM_API(name, symbol, since, until, flavours, effect, need) #name,
#define CUVMM_API_OLD CUVMM_API
#include "driver/driver_api.def"
#undef CUVMM_API
#undef CUVMM_API_OLD
};

template <Row row, class... Arguments, CUresult (*body)(Arguments...)>
const char* Door<row, body>::entry_symbol() {
  return row_symbols[static_cast<std::size_t>(row)];
}

template <Unsimulated which>
CUresult refuse() {
  return lacking(unsimulated_symbols[static_cast<std::size_t>(which)]);
}

}  // namespace

// Each symbol is one jump through a slot, so that templates can be exported under C names.
#define CUVMM_SLOT(symbol, function)                                                               \
  extern "C" {                                                                                     \
  [[gnu::visibility("hidden")]] void* cuvmm_slot_##symbol = reinterpret_cast<void*>(function);     \
  }                                                                                                \
  asm(".pushsection .text\n"                                                                       \
      ".globl " #symbol                                                                            \
      "\n"                                                                                         \
      ".type " #symbol ",%function\n" #symbol                                                      \
      ":\n" CUVMM_LANDING CUVMM_JUMP_THROUGH("cuvmm_slot_" #symbol) ".size " #symbol ",.-" #symbol \
                                                                    "\n"                           \
                                                                    ".popsection");

#define CUVMM_LEGACY(symbol) (&Door<Row::symbol, &sim_##symbol>::template call<Flavour::Legacy>)
#define CUVMM_PER_THREAD(symbol) \
  (&Door<Row::symbol, &sim_##symbol>::template call<Flavour::PerThread>)
#define CUVMM_EXPORT_Legacy(symbol)
#define CUVMM_EXPORT_LegacyAndPtds(symbol) CUVMM_SLOT(symbol##_ptds, CUVMM_PER_THREAD(symbol))
#define CUVMM_EXPORT_LegacyAndPtsz(symbol) CUVMM_SLOT(symbol##_ptsz, CUVMM_PER_THREAD(symbol))
#define CUVMM_API(name, symbol, since, until, flavours, effect, need) \
  CUVMM_SLOT(symbol, CUVMM_LEGACY(symbol))                            \
  CUVMM_EXPORT_##flavours(symbol)
#define CUVMM_API_OLD CUVMM_API
#include "driver/driver_api.def"
#undef CUVMM_API
#undef CUVMM_API_OLD

#define CUVMM_REFUSE_Legacy(symbol)
#define CUVMM_REFUSE_LegacyAndPtds(symbol) CUVMM_SLOT(symbol##_ptds, (&refuse<Unsimulated::symbol>))
#define CUVMM_REFUSE_LegacyAndPtsz(symbol) CUVMM_SLOT(symbol##_ptsz, (&refuse<Unsimulated::symbol>))
#define CUVMM_NOT_HOOKED(name, symbol, since, until, flavours, reason) \
  CUVMM_SLOT(symbol, (&refuse<Unsimulated::symbol>))                   \
  CUVMM_REFUSE_##flavours(symbol)
#include "driver/not_hooked.def"
#undef CUVMM_NOT_HOOKED

namespace {

using Entrances = std::array<Entrance, row_count + std::size(unsimulated_symbols)>;

Entrances sorted_entrances() {
#define CUVMM_OTHER_Legacy(symbol) nullptr
#define CUVMM_OTHER_LegacyAndPtds(symbol) cuvmm_slot_##symbol##_ptds
#define CUVMM_OTHER_LegacyAndPtsz(symbol) cuvmm_slot_##symbol##_ptsz
  Entrances all = {
#define CUVMM_API(name, symbol, since, until, flavours, effect, need) \
  Entrance{#name, #symbol, since, until, cuvmm_slot_##symbol, CUVMM_OTHER_##flavours(symbol)},
#define CUVMM_API_OLD CUVMM_API
#include "driver/driver_api.def"
#undef CUVMM_API
#undef CUVMM_API_OLD
#define CUVMM_NOT_HOOKED(name, symbol, since, until, flavours, reason) \
  Entrance{#name, #symbol, since, until, cuvmm_slot_##symbol, CUVMM_OTHER_##flavours(symbol)},
#include "driver/not_hooked.def"
#undef CUVMM_NOT_HOOKED
  };
  std::sort(all.begin(), all.end(), [](const Entrance& a, const Entrance& b) {
    const int names = std::strcmp(a.name, b.name);
    return names != 0 ? names < 0 : a.since < b.since;
  });
  return all;
}

const Entrances& all_entrances() {
  static constinit MadeOnce<const Entrances> all;
  return all.get(&sorted_entrances);
}

}  // namespace

const char* name_of(Row row) {
  return row_names[static_cast<std::size_t>(row)];
}
const Entrance* entrances() {
  return all_entrances().data();
}
std::size_t entrance_count() {
  return all_entrances().size();
}

}  // namespace cuvmm::sim
