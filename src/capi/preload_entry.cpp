// SPDX-License-Identifier: Apache-2.0
// Linked into the preload library only.
#include "capi/table.hpp"

namespace cuvmm::capi {
const cuvmm_engine_kind kind_of_this_engine = CUVMM_ENGINE_PRELOADED;
}

extern "C" __attribute__((visibility("default"))) const cuvmm::capi::Table* cuvmm_engine_v1(void) {
  return &cuvmm::capi::own_table();
}
