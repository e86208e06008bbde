// SPDX-License-Identifier: Apache-2.0
// CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: a copy or set that names such memory has completed when it
// returns. The driver refuses the attribute on mapped memory, so cuvmm stores it and waits itself.
#pragma once

#include <optional>
#include <string_view>

#include "engine/engine.hpp"

namespace cuvmm::hook {

bool is_synchronous(const Memory& memory, CUdeviceptr address);

// Makes one copy or set synchronous. Construct it before the driver call and call finish() after.
class SynchronousCopy {
 public:
  SynchronousCopy(Engine& engine, StreamName stream);

  // Waits for the call's stream. A captured call has nothing to wait for.
  CUresult finish(CUresult answer) const;

 private:
  const Driver& driver_;
  const CUstream stream_;
  // Waiting for the legacy stream breaks a capture on any blocking stream, so no capture may begin
  // until the wait is over. If a capture was already live, the driver refuses the copy.
  std::optional<Captures::CaptureBlock> no_capture_begins_;
};

// The attribute does not affect asynchronous copies and sets (measured).
constexpr bool is_asynchronous(std::string_view name) {
  return name.find("Async") != std::string_view::npos;
}

}  // namespace cuvmm::hook
