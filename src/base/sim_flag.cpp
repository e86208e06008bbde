// SPDX-License-Identifier: Apache-2.0
#include "base/sim_flag.hpp"

#include <algorithm>

#include "base/printable.hpp"
#include "base/sim_options.hpp"
#include "base/text.hpp"

namespace cuvmm {
namespace {

constexpr std::string_view prefix = "VMM_SIM_";

std::string in_lower_case(std::string_view name) {
  std::string key{name};
  for (char& letter : key) letter = lower(letter);
  return key;
}

std::string key_of(const OptionRow& row) {
  return in_lower_case(std::string_view{row.name}.substr(prefix.size()));
}

const OptionRow* find_row(std::string_view key) {
  const auto& rows = SimOptions::rows();
  const auto found = std::find_if(rows.begin(), rows.end(),
                                  [=](const OptionRow& row) { return key_of(row) == key; });
  return found != rows.end() ? &*found : nullptr;
}

std::string all_keys() {
  std::string keys;
  for (const OptionRow& row : SimOptions::rows()) keys += (keys.empty() ? "" : ", ") + key_of(row);
  return keys;
}

// A comma also separates several faults or delays: "fault=cuMemAlloc:1=...,cuMemMap:2=...".
std::size_t end_of_setting(std::string_view flag) {
  std::size_t end = flag.find_first_of(",\n");
  while (end < flag.size() && flag[end] == ',' && flag.substr(end + 1).starts_with("cu")) {
    end = flag.find_first_of(",\n", end + 1);
  }
  return std::min(end, flag.size());
}

}  // namespace

bool is_sim_setting(std::string_view text) {
  const std::size_t equals = text.find('=');
  return equals != std::string_view::npos && find_row(text.substr(0, equals)) != nullptr;
}

std::optional<std::string> split_sim_flag(std::string_view flag,
                                          std::vector<SimSetting>& settings) {
  while (!flag.empty()) {
    const std::string_view part = flag.substr(0, end_of_setting(flag));
    flag.remove_prefix(std::min(flag.size(), part.size() + 1));
    if (part == "true") continue;
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos) {
      return "--sim=" + printable(part) +
             ": each part is NAME=VALUE, for example devices=2,memory=8G";
    }
    const std::string key = in_lower_case(part.substr(0, equals));
    const OptionRow* const row = find_row(key);
    if (row == nullptr) {
      return "--sim=" + printable(part) + ": there is no setting '" + printable(key) +
             "'; the settings are " + all_keys();
    }
    settings.push_back({key, row->name, std::string{part.substr(equals + 1)}});
  }
  return {};
}

}  // namespace cuvmm
