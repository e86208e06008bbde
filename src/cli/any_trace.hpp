// SPDX-License-Identifier: Apache-2.0
// cuvmm's traces and other programs' recordings: PyTorch's memory snapshots and histories, RMM's
// logs.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "replay/read_trace.hpp"
#include "view/recording.hpp"

namespace cuvmm::cli {

// Opens a recording of cuvmm's, or the requests recorded by another program. For any other file,
// the error says what it is.
using AnyTrace = std::variant<view::Recording, replay::ReplayTrace>;
Result<AnyTrace> open_any_trace(const std::string& path);

// Opens either as a recording, for commands that show or export events.
Result<view::Recording> open_any_recording(const std::string& path);

// Whether a file that is to be written is one of the traces. Says so on standard error.
bool would_overwrite(const std::string& out, const std::vector<std::string>& traces);

}  // namespace cuvmm::cli
