// SPDX-License-Identifier: Apache-2.0
// The C API as a table of functions, which libcuvmm.so requests from the engine that serves it.
#pragma once

#include <cstdint>

#include "cuvmm/cuvmm.h"

namespace cuvmm::capi {

struct Table {
  std::uint32_t size;  // size of the table in its own engine's version
  std::uint32_t version;
#define CUVMM_CALL(returns, name, parameters, arguments, otherwise) returns(*name) parameters;
#include "capi/api.def"
#undef CUVMM_CALL
};

// The calls themselves, on this library's engine.
#define CUVMM_CALL(returns, name, parameters, arguments, otherwise) returns name parameters;
#include "capi/api.def"
#undef CUVMM_CALL

// The table of this library's engine, and which library that is.
const Table& own_table();
extern const cuvmm_engine_kind kind_of_this_engine;

inline constexpr std::uint32_t version_number =
    CUVMM_VERSION_MAJOR * 10000 + CUVMM_VERSION_MINOR * 100 + CUVMM_VERSION_PATCH;

}  // namespace cuvmm::capi

// Exported by the preload library. An incompatible table would get a new name.
extern "C" const cuvmm::capi::Table* cuvmm_engine_v1(void);
