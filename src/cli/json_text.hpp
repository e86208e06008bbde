// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace cuvmm::cli {

// JSON has to be UTF-8, but names and paths may be any bytes: invalid ones become U+FFFD.
inline std::string json_text(const nlohmann::json& value) {
  return value.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace cuvmm::cli
