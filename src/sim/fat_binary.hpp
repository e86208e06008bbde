// SPDX-License-Identifier: Apache-2.0
// The fat binaries that nvcc embeds in a program: images of one module for several cards, as PTX
// text and as machine code, each possibly compressed. The format is published (ZLUDA) and was
// checked against the output of nvcc 13.0.
#pragma once

#include <string>

#include "sim/cuda.hpp"

namespace cuvmm::sim {

// Whether the bytes begin like a fat binary, or like the wrapper that a program registers for one.
bool is_fat_binary(const void* image);

struct FatBinaryText {
  CUresult answer = CUDA_SUCCESS;
  std::string ptx;
  std::string lacking;  // why there is no PTX that can run
};

// Returns the PTX for the newest card that is not newer than the simulated one.
FatBinaryText read_fat_binary(const void* image);

}  // namespace cuvmm::sim
