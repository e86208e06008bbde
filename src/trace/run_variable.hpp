// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cuvmm {

// `cuvmm run` sets this variable to another value in each run, and a trace's header lists it as an
// option: it tells the traces of overlapping runs apart.
inline constexpr const char* run_variable = "CUVMM_RUN";

}  // namespace cuvmm
