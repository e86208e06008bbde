// SPDX-License-Identifier: Apache-2.0
#include "view/formats/export.hpp"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "view/formats/formats.hpp"

namespace cuvmm::view {

Result<void> export_trace(Recording& recording, ExportFormat format, OutputFile& out) {
  switch (format) {
    case ExportFormat::MemoryViz:
      return write_memory_viz(recording, out);
    case ExportFormat::Chrome:
      return write_chrome(recording, out);
    case ExportFormat::RmmCsv:
      return write_rmm_csv(recording, out);
    case ExportFormat::Csv:
      return write_csv(recording, out);
  }
  return {};
}

std::string in_microseconds(std::uint64_t ns) {
  return fmt::format("{}.{:03}", ns / 1000, ns % 1000);
}

std::string quoted_for_json(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace cuvmm::view
