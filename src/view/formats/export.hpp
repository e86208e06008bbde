// SPDX-License-Identifier: Apache-2.0
// Exports a trace to the formats of other programs. Streams everything except live blocks, so a
// trace of any length needs little memory.
#pragma once

#include <array>
#include <string_view>

#include "view/output_file.hpp"
#include "view/recording.hpp"

namespace cuvmm::view {

// memory_viz: a snapshot for PyTorch's viewer (pytorch.org/memory_viz).
// chrome: trace events for Perfetto and chrome://tracing.
// rmm-csv: RMM's log, for `cuvmm replay`; one device only.
// csv: every record with all its fields.
enum class ExportFormat { MemoryViz, Chrome, RmmCsv, Csv };
inline constexpr std::array<std::string_view, 4> format_names{"memory_viz", "chrome", "rmm-csv",
                                                              "csv"};

Result<void> export_trace(Recording& recording, ExportFormat format, OutputFile& out);

}  // namespace cuvmm::view
