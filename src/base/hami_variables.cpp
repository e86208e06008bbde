// SPDX-License-Identifier: Apache-2.0
#include "base/hami_variables.hpp"

namespace cuvmm {
namespace {

// 0 means no limit.
std::optional<Size> size_in(const Environment& environment, const std::string& name) {
  const char* const text = environment(name.c_str());
  const auto size = text == nullptr ? std::nullopt : OptionType<Bytes>::read(text);
  if (!size || size->value == 0) return {};
  return size->value;
}

std::optional<int> number_in(const Environment& environment, const char* name, int most) {
  const char* const text = environment(name);
  if (text == nullptr) return {};
  const auto number = read_integer(without_outer_blanks(text));
  if (!number || *number < 0 || *number > most) return {};
  return static_cast<int>(*number);
}

}  // namespace

HamiVariables HamiVariables::from(const Environment& environment) {
  HamiVariables found;
  const std::string limit = "CUDA_DEVICE_MEMORY_LIMIT";
  found.limit = size_in(environment, limit);
  for (std::size_t i = 0; i < found.device_limits.size(); ++i) {
    found.device_limits[i] = size_in(environment, limit + "_" + std::to_string(i)).value_or(0);
  }
  found.share = number_in(environment, "CUDA_DEVICE_SM_LIMIT", 100);
  if (const auto priority = number_in(environment, "CUDA_TASK_PRIORITY", 100)) {
    found.priority = -*priority;
  }
  return found;
}

}  // namespace cuvmm
