// SPDX-License-Identifier: Apache-2.0
// The profiler's three functions, which stand in cudaProfiler.h and so in neither list. Programs
// bracket their work with them whether or not anybody profiles it.
#include "sim/cuda.hpp"
#include "sim/process.hpp"

namespace cuvmm::sim {
namespace {

CUresult answer_if_started(CUresult answer) {
  return Process::get().started() ? answer : CUDA_ERROR_NOT_INITIALIZED;
}

}  // namespace
}  // namespace cuvmm::sim

extern "C" {

// Its third parameter's type is gone from cuda.h of 13.0; an int by any name.
[[gnu::visibility("default")]] CUresult cuProfilerInitialize(const char*, const char*, int) {
  return cuvmm::sim::answer_if_started(CUDA_ERROR_NOT_SUPPORTED);
}

[[gnu::visibility("default")]] CUresult cuProfilerStart() {
  return cuvmm::sim::answer_if_started(CUDA_SUCCESS);
}

[[gnu::visibility("default")]] CUresult cuProfilerStop() {
  return cuvmm::sim::answer_if_started(CUDA_SUCCESS);
}
}
