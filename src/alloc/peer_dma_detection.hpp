// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace cuvmm {

// Whether this process has a device open to which memory is registered by address (RDMA, GPUDirect
// Storage). Putting other memory behind a registered address breaks transfers, and registrations
// cannot be observed. Called at every move of live memory, so it is cheap on machines without such
// devices.
bool holds_device_by_address(const std::string& root = "");
// Whether the device found last is still open. Reads the name of one descriptor, not of all.
bool still_holds_device_by_address(const std::string& root = "");

}  // namespace cuvmm
