// SPDX-License-Identifier: Apache-2.0
// The C++ headers without any CUDA headers, together with the C headers.
#include <cuvmm/cuvmm.hpp>

static_assert(__cplusplus >= 202002L, "cuvmm::cuvmm brings C++20 with it");

int in_cpp() {
  const auto device = cuvmm::device_info(0);
  return device.ok() && device->granule != 0 ? 0 : 1;
}
