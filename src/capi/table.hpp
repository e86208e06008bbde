// SPDX-License-Identifier: Apache-2.0
// What libcuvmm.so asks for: the C API as a table of functions over the engine that gave it out.
#pragma once

#include <cstdint>

#include "cuvmm/cuvmm.h"

namespace cuvmm::capi {

struct Table {
  std::uint32_t size;  // of the table as its engine knows it
  std::uint32_t version;
#define CUVMM_CALL(returns, name, parameters, arguments, otherwise) returns(*name) parameters;
#include "capi/api.def"
#undef CUVMM_CALL
};

// The calls themselves, each over this library's engine.
#define CUVMM_CALL(returns, name, parameters, arguments, otherwise) returns name parameters;
#include "capi/api.def"
#undef CUVMM_CALL

// The table of the engine in this library, and which library that is.
const Table& own_table();
extern const cuvmm_engine_kind kind_of_this_engine;

inline constexpr std::uint32_t version_number =
    CUVMM_VERSION_MAJOR * 10000 + CUVMM_VERSION_MINOR * 100 + CUVMM_VERSION_PATCH;

}  // namespace cuvmm::capi

// Exported by the preload library under this name, which a later, incompatible table would change.
extern "C" const cuvmm::capi::Table* cuvmm_engine_v1(void);
