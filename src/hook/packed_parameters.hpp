// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>

#include "driver/cuda.hpp"

namespace cuvmm::hook {

// The packed form of a kernel's parameters: a list with a buffer and its size.
struct PackedParameters {
  const void* bytes = nullptr;
  std::size_t size = 0;
  bool is_understood = true;

  explicit PackedParameters(void* const* extra) {
    for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
      if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
        bytes = extra[1];
      } else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE && extra[1] != nullptr) {
        std::memcpy(&size, extra[1], sizeof size);
      } else {
        is_understood = false;
        return;
      }
    }
    if (bytes == nullptr || size == 0) is_understood = false;
  }
};

}  // namespace cuvmm::hook
