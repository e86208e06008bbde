// SPDX-License-Identifier: Apache-2.0
// Converts an Error to what a C caller receives.
#pragma once

#include "base/result.hpp"
#include "cuvmm/error.h"

namespace cuvmm::capi {

cuvmm_status status_of(const Error& error);
const char* name_of(cuvmm_status status);

// Fills in `out` unless it is null, and returns its status. `and_say` adds details known only to
// the call to the error before it is written.
cuvmm_status refuse(const Error& error, cuvmm_error* out);
template <class AndSay>
cuvmm_status refuse(const Error& error, cuvmm_error* out, AndSay and_say) {
  cuvmm_error details{};
  refuse(error, &details);
  and_say(details);
  if (out != nullptr) *out = details;
  return static_cast<cuvmm_status>(details.status);
}

inline cuvmm_status answer(const Result<void>& result, cuvmm_error* out) {
  return result.ok() ? CUVMM_OK : refuse(result.error(), out);
}

inline cuvmm_status refuse_missing_pointer(const char* doing, cuvmm_error* out) {
  return refuse(Error::invalid(doing, "a pointer is missing"), out);
}

}  // namespace cuvmm::capi
