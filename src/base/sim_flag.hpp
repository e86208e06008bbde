// SPDX-License-Identifier: Apache-2.0
// The value of --sim, such as "devices=2,memory=8G", which the command line and the services
// accept.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cuvmm {

struct SimSetting {
  std::string key;       // memory
  std::string variable;  // VMM_SIM_MEMORY
  std::string value;
};

// Whether the text is one setting, such as "memory=8G".
bool is_sim_setting(std::string_view text);

// Splits the value into its settings, which may have any value. CLI11 joins the values of several
// --sim by newlines; "true" stands for --sim alone. Returns the problem, if any.
std::optional<std::string> split_sim_flag(std::string_view flag, std::vector<SimSetting>& settings);

}  // namespace cuvmm
