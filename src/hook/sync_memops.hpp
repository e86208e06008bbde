// SPDX-License-Identifier: Apache-2.0
// CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: a copy or set that names such memory is complete when it
// returns. The driver refuses the attribute on mapped memory, so we keep it and wait ourselves.
#pragma once

#include <optional>
#include <string_view>

#include "engine/engine.hpp"

namespace cuvmm::hook {

bool is_synchronous(const Memory& memory, CUdeviceptr address);

// Makes one copy or set synchronous: constructed before the driver gets it, finished after.
class SynchronousCopy {
 public:
  SynchronousCopy(Engine& engine, StreamName stream);

  // Waits for the stream of the call. A call that was captured has nothing to wait for.
  CUresult finish(CUresult answer) const;

 private:
  const Driver& driver_;
  const CUstream stream_;
  // To wait for the legacy stream breaks a capture on any blocking stream, so none begins until
  // that wait is over. One that was live before has the driver refuse the copy.
  std::optional<Captures::HeldOff> no_capture_begins_;
};

// The attribute says nothing of asynchronous copies and sets (measured).
constexpr bool is_asynchronous(std::string_view name) {
  return name.find("Async") != std::string_view::npos;
}

}  // namespace cuvmm::hook
