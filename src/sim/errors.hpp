// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>

#include "sim/cuda.hpp"

namespace cuvmm::sim {

// The driver's name and description of an error; nullptr if the driver does not know the error.
const char* name_of(CUresult error);
const char* text_of(CUresult error);

// Finds an error by its name, such as "CUDA_ERROR_OUT_OF_MEMORY".
std::optional<CUresult> error_named(std::string_view name);

}  // namespace cuvmm::sim
