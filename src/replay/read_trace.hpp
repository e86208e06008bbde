// SPDX-License-Identifier: Apache-2.0
// Reads a program's requests from recordings of them.
#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"
#include "base/size.hpp"
#include "replay/replay_trace.hpp"
#include "replay/text_lines.hpp"

namespace cuvmm::replay {

// Reads a cuvmm trace, a PyTorch memory snapshot, a PyTorch memory history as comma-separated
// values, or an RMM log; all but the first may be compressed by gzip. The contents decide, not the
// name.
Result<ReplayTrace> read_trace(const std::string& path);

// Readers for each format. For the last two, the header line has already been read.
Result<ReplayTrace> read_cuvmm_trace(const std::string& path);
// `most`: bounds the memory that the snapshot's values take while it is read.
Result<ReplayTrace> read_pytorch_snapshot(std::string_view bytes, Size most = unlimited);
Result<ReplayTrace> read_pytorch_snapshot_file(const std::string& path);
Result<ReplayTrace> read_pytorch_history(TextLines& lines, std::string_view head);
Result<ReplayTrace> read_rmm_log(TextLines& lines, std::string_view head);

bool is_pytorch_history(std::string_view head);
bool is_rmm_log(std::string_view head);

}  // namespace cuvmm::replay
