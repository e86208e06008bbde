// SPDX-License-Identifier: Apache-2.0
// The profiler's three functions. They are declared in cudaProfiler.h, and so are in neither
// driver_api.def nor not_hooked.def. Programs bracket their work with them whether or not a
// profiler is attached.
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

// The type of its third parameter is gone from the cuda.h of 13.0; an int has the same ABI.
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
