// SPDX-License-Identifier: Apache-2.0
// Traces of cuvmm, and what others have recorded: PyTorch's memory snapshots and histories, logs of
// RMM.
#pragma once

#include <string>
#include <variant>

#include "replay/read_trace.hpp"
#include "view/recording.hpp"

namespace cuvmm::cli {

// A recording of cuvmm's, or the requests that somebody else recorded. The error says what a file
// is that is neither.
using AnyTrace = std::variant<view::Recording, replay::ReplayTrace>;
Result<AnyTrace> open_any_trace(const std::string& path);

// The same as a recording, for commands that show or export events.
Result<view::Recording> open_any_recording(const std::string& path);

}  // namespace cuvmm::cli
