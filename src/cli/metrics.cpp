// SPDX-License-Identifier: Apache-2.0
// cuvmm metrics: prints the node's metrics once, from its service or from the processes' published
// figures.
#include <fmt/core.h>

#include "cli/commands.hpp"
#include "cli/node_source.hpp"
#include "cli/output.hpp"
#include "observe/node_metrics.hpp"

namespace cuvmm::cli {
namespace {

struct MetricsRequest {
  bool open_metrics = false;
  bool list = false;
};

std::string_view type_name(observe::MetricType type) {
  constexpr std::array<std::string_view, 4> names{"gauge", "counter", "histogram", "info"};
  return names[static_cast<std::size_t>(type)];
}

int list_metrics() {
  for (const observe::Metric& one : observe::all_metrics()) {
    fmt::print("{}\t{}\t{}\t{}\t{}\n", one.name, type_name(one.type), one.unit, one.labels,
               one.help);
  }
  return 0;
}

int print_once(const MetricsRequest& request) {
  const auto format =
      request.open_metrics ? observe::MetricFormat::OpenMetrics : observe::MetricFormat::Prometheus;
  auto source = source_here(observe::ShowsArguments::No);
  wait_for_figures(*source);
  const std::string text = source->metrics({.sees_all = true}, format);
  if (text.empty()) {
    say("the node service does not answer");
    return 1;
  }
  fmt::print("{}", text);
  return 0;
}

}  // namespace

void add_metrics(CLI::App& app, int& exit_status) {
  auto request = std::make_shared<MetricsRequest>();
  CLI::App* command =
      app.add_subcommand("metrics", "print the node's metrics once, as Prometheus reads them");
  command->footer(
      "Examples:\n"
      "  cuvmm metrics | grep cuvmm_memory_lease_bytes\n"
      "  cuvmm metrics > /var/lib/node_exporter/cuvmm.prom.$$ && mv "
      "/var/lib/node_exporter/cuvmm.prom.$$ \\\n"
      "      /var/lib/node_exporter/cuvmm.prom       for node-exporter's textfile collector\n"
      "\n"
      "Where cuvmmd runs, what it serves at /metrics; else what this user's processes publish.\n"
      "docs/metrics.md says what each means.");
  command->add_flag("--openmetrics", request->open_metrics, "in OpenMetrics' format");
  command->add_flag("--list", request->list,
                    "name, type, unit, labels and meaning of each metric, separated by tabs");
  command->callback([request, &exit_status] {
    exit_status = request->list ? list_metrics() : print_once(*request);
  });
}

}  // namespace cuvmm::cli
