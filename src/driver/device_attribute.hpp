// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "driver/driver.hpp"

namespace cuvmm {

inline Result<int> device_attribute(const Driver& driver, CUdevice_attribute which, int device,
                                    const char* doing) {
  int value = 0;
  TRY(driver.check(driver.cuDeviceGetAttribute(&value, which, device), doing));
  return value;
}

// A driver that does not know an attribute lacks the feature that it describes.
inline int device_attribute_or(int otherwise, const Driver& driver, CUdevice_attribute which,
                               int device) {
  int value = 0;
  const CUresult answer = driver.cuDeviceGetAttribute(&value, which, device);
  return answer == CUDA_SUCCESS ? value : otherwise;
}

}  // namespace cuvmm
