// SPDX-License-Identifier: Apache-2.0
// A program's requests, from what recorded them.
#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"
#include "replay/replay_trace.hpp"
#include "replay/text_lines.hpp"

namespace cuvmm::replay {

// A trace of ours, a memory snapshot of PyTorch, its memory history as comma-separated values, or
// the log of RMM; all but the first compressed by gzip or not. What the file holds decides, not its
// name.
Result<ReplayTrace> read_trace(const std::string& path);

// Each by itself. The head line of the latter two has been read.
Result<ReplayTrace> read_cuvmm_trace(const std::string& path);
Result<ReplayTrace> read_pytorch_snapshot(std::string_view bytes);
Result<ReplayTrace> read_pytorch_snapshot_file(const std::string& path);
Result<ReplayTrace> read_pytorch_history(TextLines& lines, std::string_view head);
Result<ReplayTrace> read_rmm_log(TextLines& lines, std::string_view head);

bool is_pytorch_history(std::string_view head);
bool is_rmm_log(std::string_view head);

}  // namespace cuvmm::replay
