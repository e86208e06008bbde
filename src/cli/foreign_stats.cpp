// SPDX-License-Identifier: Apache-2.0
#include "cli/foreign_stats.hpp"
#include "cli/json_text.hpp"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

namespace cuvmm::cli {
namespace {

void print_row(const char* what, const std::string& value) {
  fmt::print("{:<28} {:>14}\n", what, value);
}

Size live_at_end(const replay::ReplayTrace& trace) {
  Size live = 0;
  for (const replay::ReplayEvent& event : trace.events) {
    live += event.action == replay::Action::Allocate ? event.size : Size{0} - event.size;
  }
  return live;
}

}  // namespace

void print_foreign_stats(const replay::ReplayTrace& trace, bool json) {
  const std::uint64_t frees = trace.events.size() - trace.allocations;
  if (json) {
    const nlohmann::json object = {{"schema", 1},
                                   {"source", name_of(trace.source)},
                                   {"events", trace.events.size()},
                                   {"allocations", trace.allocations},
                                   {"failed_allocations", trace.refusals.size()},
                                   {"frees", frees},
                                   {"frees_left_out", trace.frees_left_out},
                                   {"streams", trace.streams},
                                   {"largest_bytes", trace.largest_bytes},
                                   {"live_bytes_at_end", live_at_end(trace)},
                                   {"live_peak_bytes", trace.live_peak_bytes},
                                   {"reserved_peak_bytes", trace.reserved_peak_bytes},
                                   {"duration_us", trace.duration_us}};
    fmt::print("{}\n", json_text(object));
    return;
  }
  fmt::print("{}\n", name_of(trace.source));
  print_row("time", fmt::format("{:.3f} s", static_cast<double>(trace.duration_us) / 1e6));
  print_row("allocations granted", fmt::format("{}", trace.allocations));
  print_row("allocations refused", fmt::format("{}", trace.refusals.size()));
  print_row("frees", fmt::format("{}", frees));
  if (trace.frees_left_out > 0) {
    print_row("frees left out", fmt::format("{}", trace.frees_left_out));
  }
  print_row("streams", fmt::format("{}", trace.streams));
  print_row("largest allocation", print_size(trace.largest_bytes));
  print_row("peak of live bytes", print_size(trace.live_peak_bytes));
  if (trace.reserved_peak_bytes > 0) {
    print_row("peak that PyTorch reserved", print_size(trace.reserved_peak_bytes));
  }
  print_row("live at the end", print_size(live_at_end(trace)));
}

}  // namespace cuvmm::cli
