// SPDX-License-Identifier: Apache-2.0
// cuvmm_cluster_simulation: the node's policy on many simulated machines
// (docs/cluster_simulation.md).
#include <CLI/CLI.hpp>
#include <array>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "bench/cluster/simulation.hpp"

namespace cuvmm::cluster {
namespace {

struct NamedSharing {
  const char* name;
  Sharing sharing;
};
constexpr std::array sharings{
    NamedSharing{"whole", Sharing::WholeCards}, NamedSharing{"fixed", Sharing::FixedFractions},
    NamedSharing{"kept", Sharing::KeptShares}, NamedSharing{"lent", Sharing::LentShares}};

nlohmann::json as_json(const char* sharing, const SimulationRequest& request,
                       const SimulationFigures& figures) {
  return {{"sharing", sharing},
          {"cards", request.cards},
          {"hours", request.hours},
          {"load", request.load},
          {"guaranteed_part", request.guaranteed_part},
          {"seed", request.seed},
          {"arrived", figures.arrived},
          {"started", figures.started},
          {"finished", figures.finished},
          {"wait_median_s", figures.wait_median},
          {"wait_95_s", figures.wait_95},
          {"running_per_card", figures.running_per_card},
          {"served", figures.served},
          {"stalled", figures.stalled},
          {"grants", figures.grants},
          {"refusals", figures.refusals},
          {"pauses", figures.pauses},
          {"moved_gib", figures.moved_gib},
          {"broken_guarantees", figures.broken}};
}

int run(int count, char** words) {
  CLI::App app{
      "Plays jobs, drawn from the distributions of Alibaba's cluster-trace-gpu-v2023, on a cluster "
      "whose machines each have cuvmmd's policy. Everything is simulated.",
      "cuvmm_cluster_simulation"};
  std::vector<unsigned> cards{10, 100, 1000, 10'000};
  std::vector<std::string> names;
  SimulationRequest request;
  bool json = false;
  app.add_option("--cards", cards, "cluster sizes, as 10,100")
      ->delimiter(',')
      ->check(CLI::Range(8, 100'000));
  app.add_option("--sharing", names, "whole, fixed, kept or lent; else all of them")
      ->delimiter(',')
      ->check(CLI::IsMember({"whole", "fixed", "kept", "lent"}));
  app.add_option("--hours", request.hours, "simulated time; figures leave out its first quarter")
      ->check(CLI::Range(0.1, 1000.0))
      ->capture_default_str();
  app.add_option("--load", request.load, "memory that jobs ask for, of what there is")
      ->check(CLI::Range(0.01, 10.0))
      ->capture_default_str();
  app.add_option("--guaranteed", request.guaranteed_part,
                 "part of what a job asks for that is guaranteed where shares are lent")
      ->check(CLI::Range(0.5, 1.0))
      ->capture_default_str();
  app.add_option("--seed", request.seed, "of the jobs")->capture_default_str();
  app.add_flag("--json", json, "one object for each line");
  try {
    app.parse(count, words);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (!json) {
    std::printf("%7s %-6s %9s %9s %11s %11s %9s %7s %8s %9s %9s %7s\n", "cards", "shares",
                "arrived", "started", "wait 50% s", "wait 95% s", "jobs/card", "served", "stalled",
                "pauses", "moved GiB", "broken");
  }
  for (const unsigned size : cards) {
    for (const auto& [name, sharing] : sharings) {
      const bool is_wanted = names.empty() || std::ranges::find(names, name) != names.end();
      if (!is_wanted) continue;
      request.cards = size;
      request.sharing = sharing;
      const SimulationFigures figures = Simulation{request}.run();
      if (json) {
        std::printf("%s\n", as_json(name, request, figures).dump().c_str());
      } else {
        std::printf("%7u %-6s %9llu %9llu %11.0f %11.0f %9.2f %6.1f%% %7.1f%% %9llu %9.0f %7llu\n",
                    size, name, static_cast<unsigned long long>(figures.arrived),
                    static_cast<unsigned long long>(figures.started), figures.wait_median,
                    figures.wait_95, figures.running_per_card, figures.served * 100,
                    figures.stalled * 100, static_cast<unsigned long long>(figures.pauses),
                    figures.moved_gib, static_cast<unsigned long long>(figures.broken));
      }
      std::fflush(stdout);
    }
  }
  return 0;
}

}  // namespace
}  // namespace cuvmm::cluster

int main(int count, char** words) {
  try {
    return cuvmm::cluster::run(count, words);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cuvmm_cluster_simulation: %s\n", error.what());
    return 1;
  }
}
