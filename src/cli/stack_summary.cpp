// SPDX-License-Identifier: Apache-2.0
#include "cli/stack_summary.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "cli/output.hpp"

namespace cuvmm::cli {
namespace {

constexpr std::size_t callers_shown = 5;
constexpr std::size_t leaks_shown = 3;

void print_names(const std::vector<std::string>& names) {
  for (std::size_t i = 0; i < std::min(names.size(), callers_shown + 1); ++i) {
    fmt::print("{}{}\n", i == 0 ? "" : fmt::format("{:38}from ", ""), printable(names[i]));
  }
  if (names.size() > callers_shown + 1) {
    fmt::print("{:38}and {} more callers\n", "", names.size() - callers_shown - 1);
  }
}

// --stacks=all
bool has_every_stack(const TraceHeader& header) {
  return std::any_of(header.options.begin(), header.options.end(), [](const TraceOption& option) {
    return option.name == "VMM_STACKS" && option.value == "all";
  });
}

}  // namespace

void print_stacks(const TraceHeader& header, view::StackUses& uses, std::size_t most) {
  if (uses.is_empty()) {
    say("this trace has no call stacks; `cuvmm run --stacks --trace FILE` records them");
    return;
  }
  view::StackNames names{header};
  fmt::print("\nby call stack{}\n{:>11} {:>11} {:>11}   {}\n",
             has_every_stack(header) ? "" : " (estimated from samples)", "AT PEAK", "NEVER FREED",
             "ALLOCATED", "PLACE");
  for (const view::StackUse& use : uses.sorted(names)) {
    if (most-- == 0) break;
    fmt::print("{:>11} {:>11} {:>11}   ", print_size(use.at_peak), print_size(use.at_end),
               print_size(use.allocated));
    print_names(names.names_of(use.stack));
  }
}

void add_stacks_to(const TraceHeader& header, view::StackUses& uses, std::size_t most,
                   nlohmann::json& object) {
  view::StackNames names{header};
  auto stacks = nlohmann::json::array();
  for (const view::StackUse& use : uses.sorted(names)) {
    if (stacks.size() == most) break;
    stacks.push_back({{"at_peak_bytes", use.at_peak},
                      {"never_freed_bytes", use.at_end},
                      {"allocated_bytes", use.allocated},
                      {"samples", use.samples},
                      {"places", names.names_of(use.stack)}});
  }
  object["stacks"] = std::move(stacks);
}

void print_leaking_stacks(const TraceHeader& header, view::StackUses& uses) {
  view::StackNames names{header};
  auto stacks = uses.sorted(names);
  std::erase_if(stacks, [](const view::StackUse& use) { return use.at_end == 0; });
  std::stable_sort(stacks.begin(), stacks.end(),
                   [](const auto& a, const auto& b) { return a.at_end > b.at_end; });
  for (std::size_t i = 0; i < std::min(stacks.size(), leaks_shown); ++i) {
    say_more(fmt::format("    {:>9}  {}", print_size(stacks[i].at_end),
                         printable(names.name_of(stacks[i].stack))));
  }
}

}  // namespace cuvmm::cli
