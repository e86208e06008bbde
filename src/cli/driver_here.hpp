// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cuvmm::cli {

// Whether this machine has a CUDA driver.
bool has_driver();

}  // namespace cuvmm::cli
