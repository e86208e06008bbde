// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuvmm/version.h"

namespace cuvmm {

// Stands in the preload library's file, so that its version can be read without loading it. The
// line end tells 0.1.1 from 0.1.10.
inline constexpr char preload_version_words[] = "cuvmm preload library " CUVMM_VERSION_STRING "\n";

}  // namespace cuvmm
