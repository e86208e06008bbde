// SPDX-License-Identifier: Apache-2.0
#include "vmm/location.hpp"

namespace cuvmm {

std::string Location::print() const {
  return (is_device() ? "device " : "host node ") + std::to_string(id_);
}

}  // namespace cuvmm
