// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace cuvmm {

// Devices to which memory is registered by its address (RDMA, GPUDirect storage): who puts other
// memory there breaks a transfer, and nobody tells us of the registration. Whether this process
// has one open. Asked at every move of live memory, so it is cheap on machines that have none.
bool holds_device_by_address(const std::string& root = "");
// Whether the one that was found last is still open. Reads one name, not that of every descriptor.
bool still_holds_device_by_address(const std::string& root = "");

}  // namespace cuvmm
