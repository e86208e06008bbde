// SPDX-License-Identifier: Apache-2.0
// Libraries set these attributes before each launch, mostly to the current value. Then queued work
// is not affected and need not be issued first.
#include "hook/scheduled/dispatch_mode.hpp"

namespace cuvmm::hook {
namespace {

template <Call call, class Ask, class... Arguments>
CUresult set(const Forward<call>& forward, int value, Ask&& ask, Arguments... arguments) {
  int present = 0;
  const bool is_set = ask(&present) == CUDA_SUCCESS && present == value;
  if (!is_set) settle_for(forward.engine(), call);
  return make_now(forward, arguments...);
}

}  // namespace

CUVMM_SCHEDULE(cuFuncSetAttribute, CUfunction function, CUfunction_attribute attribute, int value) {
  const auto ask = [&](int* present) {
    return forward.engine().driver().cuFuncGetAttribute(present, attribute, function);
  };
  return set(forward, value, ask, function, attribute, value);
}

CUVMM_SCHEDULE(cuKernelSetAttribute, CUfunction_attribute attribute, int value, CUkernel kernel,
               CUdevice device) {
  const auto ask = [&](int* present) {
    return forward.engine().driver().cuKernelGetAttribute(present, attribute, kernel, device);
  };
  return set(forward, value, ask, attribute, value, kernel, device);
}

}  // namespace cuvmm::hook
