// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>

#include "sim/cuda.hpp"

namespace cuvmm::sim {

// What the driver calls an error and says of it; nullptr where it knows no such error.
const char* name_of(CUresult error);
const char* text_of(CUresult error);

// The error of that name: "CUDA_ERROR_OUT_OF_MEMORY".
std::optional<CUresult> error_named(std::string_view name);

}  // namespace cuvmm::sim
