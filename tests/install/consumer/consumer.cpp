// SPDX-License-Identifier: Apache-2.0
// The C++ headers with nothing of CUDA at hand, at the same time as the C ones.
#include <cuvmm/cuvmm.hpp>

int in_cpp() {
  const auto device = cuvmm::device_info(0);
  return device.ok() && device->granule != 0 ? 0 : 1;
}
