// SPDX-License-Identifier: Apache-2.0
// What nvcc embeds in a program: images of one module for several cards, as PTX text and as machine
// code, each perhaps compressed. The form is published (ZLUDA) and was seen in what nvcc 13.0
// writes.
#pragma once

#include <string>

#include "sim/cuda.hpp"

namespace cuvmm::sim {

// Whether the bytes begin as a fat binary, or as what a program registers for one.
bool is_fat_binary(const void* image);

struct FatBinaryText {
  CUresult answer = CUDA_SUCCESS;
  std::string ptx;
  std::string lacking;  // why there is none that can be run
};

// The PTX for the newest card that is not newer than ours.
FatBinaryText read_fat_binary(const void* image);

}  // namespace cuvmm::sim
