// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuvmm/engine.h"
#include "cuvmm/result.hpp"

namespace cuvmm {
inline namespace v1 {

using EngineInfo = cuvmm_engine_info;
using DeviceInfo = cuvmm_device_info;

// The version of the loaded library: CUVMM_VERSION_MAJOR * 10000 + MINOR * 100 + PATCH.
inline std::uint32_t version() {
  return cuvmm_version();
}

inline Result<EngineInfo> engine_info() {
  return detail::answer_with<EngineInfo>(&cuvmm_get_engine_info);
}

inline Result<DeviceInfo> device_info(int device) {
  return detail::answer_with<DeviceInfo>([device](DeviceInfo* info, cuvmm_error* error) {
    return cuvmm_get_device_info(device, info, error);
  });
}

}  // namespace v1
}  // namespace cuvmm
