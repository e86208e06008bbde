// SPDX-License-Identifier: Apache-2.0
// The actions in PyTorch's memory history, as they concern another allocator.
#pragma once

#include <cstdint>
#include <string_view>

namespace cuvmm::replay::pytorch {

enum class Meaning : std::uint8_t { Allocate, Free, Refused, Take, GiveBack, Nothing, Unknown };

// A block in use by another stream stays live after free_requested. Take and GiveBack are PyTorch's
// own requests to the driver, its segment_ actions.
inline Meaning meaning_of(std::string_view action) {
  if (action == "alloc") return Meaning::Allocate;
  if (action == "free_completed") return Meaning::Free;
  if (action == "oom") return Meaning::Refused;
  if (action == "segment_alloc" || action == "segment_map") return Meaning::Take;
  if (action == "segment_free" || action == "segment_unmap") return Meaning::GiveBack;
  if (action == "free_requested" || action == "snapshot" || action == "workspace_snapshot" ||
      action == "annotate") {
    return Meaning::Nothing;
  }
  return action.starts_with("segment_") ? Meaning::Nothing : Meaning::Unknown;
}

}  // namespace cuvmm::replay::pytorch
