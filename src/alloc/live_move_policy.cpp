// SPDX-License-Identifier: Apache-2.0
#include "alloc/live_move_policy.hpp"

#include "alloc/peer_dma_detection.hpp"

namespace cuvmm {

bool LiveMovePolicy::may_move() const {
  if (compact_ == Compact::Off || !dependencies_.sees_everything()) return false;
  return !may_be_registered_by_address();
}

bool LiveMovePolicy::is_ruled_out() const {
  return compact_ == Compact::Off || !dependencies_.sees_everything() ||
         is_known_to_register_by_address();
}

bool LiveMovePolicy::may_be_registered_by_address() const {
  return compact_ != Compact::On && holds_device_by_address();
}

bool LiveMovePolicy::is_known_to_register_by_address() const {
  return compact_ != Compact::On && still_holds_device_by_address();
}

}  // namespace cuvmm
