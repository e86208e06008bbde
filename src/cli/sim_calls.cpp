// SPDX-License-Identifier: Apache-2.0
#include "cli/sim_calls.hpp"

#include <algorithm>

#include "base/printable.hpp"
#include "base/text.hpp"
#include "driver/calls.hpp"

namespace cuvmm::cli {
namespace {

bool is_function(std::string_view name) {
  return std::any_of(all_calls().begin(), all_calls().end(),
                     [&](const CallInfo& call) { return call.name == name; });
}

bool is_error(std::string_view name) {
  constexpr std::string_view names[] = {
#define CUVMM_DRIVER_ERROR(name, text) #name,
#include "driver/errors.def"
#undef CUVMM_DRIVER_ERROR
  };
  return name != "CUDA_SUCCESS" &&
         std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// The first function that the value names and no driver has; empty if there is none.
std::string unknown_function(std::string_view text) {
  for (;;) {
    const std::size_t comma = text.find(',');
    const std::string_view part = without_outer_blanks(text.substr(0, comma));
    const std::size_t end = part.find_first_of(":=");
    const std::string_view name = part.substr(0, end);
    if (end != std::string_view::npos && !name.empty() && !is_function(name)) {
      return std::string{name};
    }
    if (comma == std::string_view::npos) return {};
    text.remove_prefix(comma + 1);
  }
}

// "cuMemMap:7=CUDA_ERROR_OUT_OF_MEMORY"
bool is_fault(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::size_t equals = text.find('=');
  if (colon == std::string_view::npos || equals == std::string_view::npos || colon > equals) {
    return false;
  }
  const auto number = read_integer(text.substr(colon + 1, equals - colon - 1));
  const std::string_view effect = text.substr(equals + 1);
  return is_function(text.substr(0, colon)) && number && *number >= 1 &&
         (effect == "SIGKILL" || is_error(effect));
}

// "cuMemMap=25us"
bool is_delay(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos) return false;
  const auto time = OptionType<Duration>::read(text.substr(equals + 1));
  return is_function(text.substr(0, equals)) && time && *time <= an_hour;
}

bool all_parts(std::string_view text, bool (*is_one)(std::string_view)) {
  for (;;) {
    const std::size_t comma = text.find(',');
    if (!is_one(without_outer_blanks(text.substr(0, comma)))) return false;
    if (comma == std::string_view::npos) return true;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace

std::optional<OptionProblem> problem_of_calls(const std::string& option, const std::string& value) {
  if (without_outer_blanks(value).empty()) return {};
  if (option == "VMM_SIM_FAULT" || option == "VMM_SIM_DELAY") {
    if (const std::string name = unknown_function(value); !name.empty()) {
      return OptionProblem{option, value, "there is no driver function '" + printable(name) + "'"};
    }
  }
  if (option == "VMM_SIM_FAULT" && !all_parts(value, &is_fault)) {
    return OptionProblem{option, value,
                         "allowed: FUNCTION:NUMBER=CUDA_ERROR_... or =SIGKILL, several with "
                         "commas; errors as cuda.h names them"};
  }
  if (option == "VMM_SIM_DELAY" && !all_parts(value, &is_delay)) {
    return OptionProblem{option, value,
                         "allowed: FUNCTION=TIME (cuMemMap=25us), several with commas"};
  }
  return {};
}

}  // namespace cuvmm::cli
