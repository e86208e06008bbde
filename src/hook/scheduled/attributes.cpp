// SPDX-License-Identifier: Apache-2.0
// What libraries set before each launch is most often set already: then nothing that is queued runs
// otherwise, and nothing has to be issued before.
#include "hook/scheduled/way.hpp"

namespace cuvmm::hook {

CUVMM_SCHEDULE(cuFuncSetAttribute, CUfunction function, CUfunction_attribute attribute, int value) {
  Engine& engine = forward.engine();
  int set = 0;
  const bool is_set =
      engine.driver().cuFuncGetAttribute(&set, attribute, function) == CUDA_SUCCESS && set == value;
  if (!is_set) settle_for(engine, Call::cuFuncSetAttribute);
  return make_now(forward, function, attribute, value);
}

CUVMM_SCHEDULE(cuKernelSetAttribute, CUfunction_attribute attribute, int value, CUkernel kernel,
               CUdevice device) {
  Engine& engine = forward.engine();
  int set = 0;
  const bool is_set =
      engine.driver().cuKernelGetAttribute(&set, attribute, kernel, device) == CUDA_SUCCESS &&
      set == value;
  if (!is_set) settle_for(engine, Call::cuKernelSetAttribute);
  return make_now(forward, attribute, value, kernel, device);
}

}  // namespace cuvmm::hook
