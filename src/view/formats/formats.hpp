// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "view/formats/export.hpp"

namespace cuvmm::view {

Result<void> write_memory_viz(Recording& recording, OutputFile& out);
Result<void> write_chrome(Recording& recording, OutputFile& out);
Result<void> write_rmm_csv(Recording& recording, OutputFile& out);
Result<void> write_csv(Recording& recording, OutputFile& out);

// ns as "1234.567" microseconds.
std::string in_microseconds(std::uint64_t ns);
// A text as a quoted JSON string; bytes that are not UTF-8 become question marks.
std::string quoted_for_json(std::string_view text);

}  // namespace cuvmm::view
