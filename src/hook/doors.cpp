// SPDX-License-Identifier: Apache-2.0
// One door per row and flavour, and the exported symbol of each.
#include "base/processor.h"
#include "hook/entry.hpp"

namespace cuvmm::hook {

// Instantiated in common_doors.cpp.
#define CUVMM_COMMON(symbol, flavours) CUVMM_EACH_##flavours(extern, symbol)
#include "hook/common_doors.def"
#undef CUVMM_COMMON

// Each symbol is a jump through a slot, so that templates can be exported under C names.
#define CUVMM_SLOT(symbol, function)                                                               \
  extern "C" {                                                                                     \
  [[gnu::visibility("hidden")]] void* cuvmm_door_##symbol = reinterpret_cast<void*>(function);     \
  }                                                                                                \
  asm(".pushsection .text\n"                                                                       \
      ".globl " #symbol                                                                            \
      "\n"                                                                                         \
      ".type " #symbol ",%function\n" #symbol                                                      \
      ":\n" CUVMM_LANDING CUVMM_JUMP_THROUGH("cuvmm_door_" #symbol) ".size " #symbol ",.-" #symbol \
                                                                    "\n"                           \
                                                                    ".popsection");

#define CUVMM_ENTER(symbol, flavour) (&CUVMM_DOOR(symbol, flavour)::enter)
#define CUVMM_EXPORT_Legacy(symbol)
#define CUVMM_EXPORT_LegacyAndPtds(symbol) \
  CUVMM_SLOT(symbol##_ptds, CUVMM_ENTER(symbol, Flavour::PerThread))
#define CUVMM_EXPORT_LegacyAndPtsz(symbol) \
  CUVMM_SLOT(symbol##_ptsz, CUVMM_ENTER(symbol, Flavour::PerThread))
#define CUVMM_API(name, symbol, since, until, flavours, effect, need) \
  CUVMM_SLOT(symbol, CUVMM_ENTER(symbol, Flavour::Legacy))            \
  CUVMM_EXPORT_##flavours(symbol)
#define CUVMM_API_OLD CUVMM_API
#include "driver/driver_api.def"
#undef CUVMM_API
#undef CUVMM_API_OLD

#define CUVMM_OTHER_Legacy(symbol) nullptr
#define CUVMM_OTHER_LegacyAndPtds(symbol) \
  reinterpret_cast<void*>(CUVMM_ENTER(symbol, Flavour::PerThread))
#define CUVMM_OTHER_LegacyAndPtsz CUVMM_OTHER_LegacyAndPtds

// The loader fills in these addresses, so the first use needs no initialization.
static const std::array<DoorPair, call_count> doors = {{
#define CUVMM_API(name, symbol, since, until, flavours, effect, need)     \
  DoorPair{reinterpret_cast<void*>(CUVMM_ENTER(symbol, Flavour::Legacy)), \
           CUVMM_OTHER_##flavours(symbol)},
#define CUVMM_API_OLD CUVMM_API
#include "driver/driver_api.def"
#undef CUVMM_API
#undef CUVMM_API_OLD
}};

const std::array<DoorPair, call_count>& all_doors() {
  return doors;
}

}  // namespace cuvmm::hook
