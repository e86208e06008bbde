// SPDX-License-Identifier: Apache-2.0
#include "observe/node_metrics.hpp"

#include <algorithm>
#include <array>
#include <functional>

namespace cuvmm::observe {
namespace {

enum class Family : std::uint8_t {
#define CUVMM_METRIC(identifier, name, type, unit, labels, help) identifier,
#include "observe/node_metrics.def"
#undef CUVMM_METRIC
};

constexpr Metric metrics[] = {
#define CUVMM_METRIC(identifier, name, type, unit, labels, help) \
  {name, MetricType::type, unit, labels, help},
#include "observe/node_metrics.def"
#undef CUVMM_METRIC
};

double number(std::uint64_t value) {
  return static_cast<double>(value);
}

double seconds(std::uint64_t us) {
  return number(us) / 1e6;
}

// The share of used memory that the program did not request: the cost of rounding and of holes
// between blocks.
std::optional<double> fragmentation(const share::DeviceFigures& figures) {
  const Size held = figures.physical + figures.spilled;
  const Size used = held > figures.cached ? held - figures.cached : 0;
  if (used == 0) return {};
  return 1 - number(std::min(figures.requested_live, used)) / number(used);
}

TimeHistogram histogram_of(const share::PauseFigures& figures) {
  TimeHistogram histogram{share::PauseFigures::bounds_us};
  for (std::size_t i = 0; i < figures.counts.size(); ++i) histogram.add(i, figures.counts[i], 0);
  histogram.add(0, 0, figures.sum_us);
  return histogram;
}

// Writes the families in turn, each with the samples of all clients.
class MetricsPrinter {
 public:
  MetricsPrinter(const Snapshot& snapshot, MetricFormat format)
      : snapshot_(snapshot), text_(format) {}

  std::string print() && {
    for (std::size_t i = 0; i < std::size(metrics); ++i) {
      text_.begin(metrics[i]);
      print_family(static_cast<Family>(i));
    }
    return std::move(text_).finish();
  }

 private:
  using LeaseNumber = std::optional<double> (*)(const LeaseSample&);
  using FigureNumber = std::optional<double> (*)(const share::DeviceFigures&);

  void of_leases(LeaseNumber value) {
    each_holding([&](const ClientSample& client, const HoldingSample& holding) {
      const auto shown = holding.lease ? value(*holding.lease) : std::nullopt;
      if (shown) text_.sample(place_labels(client, holding), *shown);
    });
  }
  void of_figures(FigureNumber value) {
    each_holding([&](const ClientSample& client, const HoldingSample& holding) {
      const auto shown = holding.figures ? value(*holding.figures) : std::nullopt;
      if (shown) text_.sample(place_labels(client, holding), *shown);
    });
  }
  template <class Visit>
  void each_holding(Visit visit) {
    for (const ClientSample& client : snapshot_.clients) {
      for (const HoldingSample& holding : client.holdings) visit(client, holding);
    }
  }
  template <class Visit>
  void each_tally(Visit visit) {
    for (const ClientSample& client : snapshot_.clients) {
      if (client.tally) visit(client, *client.tally);
    }
  }
  void of_times(std::uint64_t (*microseconds)(const TimeSample&)) {
    for (const ClientSample& client : snapshot_.clients) {
      if (!client.time) continue;
      text_.sample({{"client", client.label}}, seconds(microseconds(*client.time)));
    }
  }
  static Labels place_labels(const ClientSample& client, const HoldingSample& holding) {
    return {{"gpu_uuid", holding.device}, {"client", client.label}};
  }

  void print_attempts(const ClientSample& client, const char* phase,
                      const ClientTally::Attempts& attempts) {
    for (const auto& [outcome, count] :
         {std::pair{"done", attempts.done}, {"failed", attempts.failed}}) {
      text_.sample({{"client", client.label}, {"phase", phase}, {"outcome", outcome}},
                   number(count));
    }
  }

  void print_family(Family family);
  void print_info();
  void print_moved();
  void print_pauses();

  const Snapshot& snapshot_;
  Exposition text_;
};

void MetricsPrinter::print_family(Family family) {
  using Figures = share::DeviceFigures;
  switch (family) {
    case Family::Up:
      return text_.sample({}, snapshot_.has_service ? 1 : 0);
    case Family::Uptime:
      if (snapshot_.has_service) text_.sample({}, seconds(snapshot_.up_us));
      return;
    case Family::Clients:
      return text_.sample({}, number(snapshot_.clients.size() + snapshot_.hidden_clients));
    case Family::Capacity:
      for (const DeviceSample& one : snapshot_.devices) {
        text_.sample({{"gpu_uuid", one.uuid}}, number(one.capacity));
      }
      return;
    case Family::Foreign:
      for (const DeviceSample& one : snapshot_.devices) {
        if (one.foreign) text_.sample({{"gpu_uuid", one.uuid}}, number(*one.foreign));
      }
      return;
    case Family::Info:
      return print_info();
    case Family::State:
      for (const ClientSample& client : snapshot_.clients) {
        for (std::size_t i = 0; i < condition_names.size(); ++i) {
          text_.sample({{"client", client.label}, {"state", condition_names[i]}},
                       static_cast<std::size_t>(client.condition) == i ? 1 : 0);
        }
      }
      return;
    case Family::Live:
      return of_figures(
          [](const Figures& now) -> std::optional<double> { return number(now.requested_live); });
    case Family::Cached:
      return of_figures(
          [](const Figures& now) -> std::optional<double> { return number(now.cached); });
    case Family::Physical:
      return of_figures(
          [](const Figures& now) -> std::optional<double> { return number(now.physical); });
    case Family::Spilled:
      return of_figures(
          [](const Figures& now) -> std::optional<double> { return number(now.spilled); });
    case Family::SpilledHot:
      return of_figures(
          [](const Figures& now) -> std::optional<double> { return number(now.spilled_hot); });
    case Family::Paused:
      for (const ClientSample& client : snapshot_.clients) {
        if (client.paused) text_.sample({{"client", client.label}}, number(*client.paused));
      }
      return;
    case Family::OffDevices:
      for (const ClientSample& client : snapshot_.clients) {
        text_.sample({{"client", client.label}}, client.is_off_devices ? 1 : 0);
      }
      return;
    case Family::Fragmentation:
      return of_figures(&fragmentation);
    case Family::Guaranteed:
      return of_leases(
          [](const LeaseSample& one) -> std::optional<double> { return number(one.guarantee); });
    case Family::Limit:
      return each_holding([&](const ClientSample& client, const HoldingSample& holding) {
        const Size of_service = holding.lease ? holding.lease->limit : unlimited;
        const Size own = holding.figures ? holding.figures->limit : unlimited;
        const Size limit = std::min(of_service, own);
        if (limit != unlimited) text_.sample(place_labels(client, holding), number(limit));
      });
    case Family::Lease:
      return of_leases(
          [](const LeaseSample& one) -> std::optional<double> { return number(one.leased); });
    case Family::WaitedFor:
      return of_leases(
          [](const LeaseSample& one) -> std::optional<double> { return number(one.waited_for); });
    case Family::WaitsFor:
      return of_leases(
          [](const LeaseSample& one) -> std::optional<double> { return seconds(one.waits_us); });
    case Family::AllocFailures:
      return each_holding([&](const ClientSample& client, const HoldingSample& holding) {
        if (!holding.figures) return;
        Labels labels = place_labels(client, holding);
        labels.push_back({"reason", "out_of_memory"});
        text_.sample(labels, number(holding.figures->refusals));
      });
    case Family::LeaseRefusals:
      return each_tally([&](const ClientSample& client, const ClientTally& tally) {
        for (const auto& [where, count] : tally.refusals) {
          text_.sample({{"gpu_uuid", where.first},
                        {"client", client.label},
                        {"reason", name_of(where.second)}},
                       number(count));
        }
      });
    case Family::MovedBytes:
      return print_moved();
    case Family::Reclaims:
      return each_tally([&](const ClientSample& client, const ClientTally& tally) {
        for (const auto& [where, reclaims] : tally.reclaims) {
          for (const auto& [end, count] : reclaims.ended) {
            text_.sample({{"gpu_uuid", where.first},
                          {"client", client.label},
                          {"step", name_of(where.second)},
                          {"outcome", name_of(end)}},
                         number(count));
          }
        }
      });
    case Family::ReclaimedBytes:
      return each_tally([&](const ClientSample& client, const ClientTally& tally) {
        for (const auto& [where, reclaims] : tally.reclaims) {
          text_.sample({{"gpu_uuid", where.first},
                        {"client", client.label},
                        {"step", name_of(where.second)}},
                       number(reclaims.bytes));
        }
      });
    case Family::Turns:
      return each_tally([&](const ClientSample& client, const ClientTally& tally) {
        text_.sample({{"client", client.label}}, number(tally.turns));
      });
    case Family::DeepPauses:
      return each_tally([&](const ClientSample& client, const ClientTally& tally) {
        print_attempts(client, "out", tally.departures);
        print_attempts(client, "in", tally.returns);
      });
    case Family::TurnSeconds:
      return each_tally([&](const ClientSample& client, const ClientTally& tally) {
        text_.sample({{"client", client.label}}, seconds(tally.turns_us));
      });
    case Family::GpuSeconds:
      return of_times([](const TimeSample& time) { return time.held_us; });
    case Family::GpuWaitSeconds:
      return of_times([](const TimeSample& time) { return time.waited_us; });
    case Family::LeaseWait:
      return each_tally([&](const ClientSample& client, const ClientTally& tally) {
        for (const auto& [device, waits] : tally.lease_waits) {
          text_.sample({{"gpu_uuid", device}, {"client", client.label}}, waits);
        }
      });
    case Family::Pause:
      return print_pauses();
  }
}

void MetricsPrinter::print_info() {
  for (const ClientSample& client : snapshot_.clients) {
    const std::string process = client.process == 0 ? "" : std::to_string(client.process);
    const std::string user = std::to_string(client.user);
    text_.sample({{"client", client.label},
                  {"pid", process},
                  {"user", user},
                  {"group", client.group},
                  {"program", client.program},
                  {"arguments", client.arguments},
                  {"mode", client.mode},
                  {"version", client.version}},
                 1);
  }
}

void MetricsPrinter::print_moved() {
  const auto moved = [&](const ClientSample& client, const std::string& device, const char* from,
                         const char* to, const char* cause, Size bytes) {
    text_.sample({{"gpu_uuid", device},
                  {"client", client.label},
                  {"from", from},
                  {"to", to},
                  {"cause", cause}},
                 number(bytes));
  };
  for (const ClientSample& client : snapshot_.clients) {
    for (const HoldingSample& one : client.holdings) {
      if (!one.figures) continue;
      moved(client, one.device, "device", "device", "compaction", one.figures->moved);
      moved(client, one.device, "host", "device", "placement", one.figures->placed_in);
      moved(client, one.device, "device", "host", "placement", one.figures->placed_out);
    }
    // Summed over all devices of the process.
    if (client.pauses) moved(client, "", "device", "host", "pause", client.pauses->bytes);
    if (client.resumes) moved(client, "", "host", "device", "resume", client.resumes->bytes);
  }
}

void MetricsPrinter::print_pauses() {
  for (const ClientSample& client : snapshot_.clients) {
    const auto phase = [&](const char* name, const share::PauseFigures& figures) {
      text_.sample({{"client", client.label}, {"phase", name}}, histogram_of(figures));
    };
    if (client.pauses) phase("out", *client.pauses);
    if (client.resumes) phase("in", *client.resumes);
  }
}

}  // namespace

std::span<const Metric> all_metrics() {
  return metrics;
}

std::string print_metrics(const Snapshot& snapshot, MetricFormat format) {
  return MetricsPrinter{snapshot, format}.print();
}

}  // namespace cuvmm::observe
