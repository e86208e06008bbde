// SPDX-License-Identifier: Apache-2.0
// cuvmm replay: replays a trace's requests with an allocator or a model of another one.
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/kept_text.hpp"
#include "cli/commands.hpp"
#include "cli/install_places.hpp"
#include "cli/json_text.hpp"
#include "cli/output.hpp"
#include "cli/replay_request.hpp"
#include "replay/make_policy.hpp"
#include "replay/measured_card.hpp"
#include "replay/read_trace.hpp"

namespace cuvmm::cli {
namespace {

using replay::Outcome;
using replay::PolicyName;
using replay::PolicySettings;
using replay::ReplayTrace;

constexpr int exit_out_of_memory = 3;

int tell(int status, const std::string& what, const std::string& why) {
  say(what + ": " + why);
  return status;
}

nlohmann::json as_json(const PolicySettings& settings, const ReplayTrace& trace,
                       const Outcome& outcome) {
  nlohmann::json object = {{"schema", 1},
                           {"completed", outcome.completed},
                           {"policy", name_of(settings.name)},
                           {"events", outcome.events},
                           {"trace_events", trace.events.size()},
                           {"live_peak_bytes", trace.live_peak_bytes},
                           {"physical_peak_bytes", outcome.counters.physical_peak_bytes},
                           {"limit_bytes", nullptr},
                           {"moves", outcome.counters.moves},
                           {"creates", outcome.counters.creates},
                           {"retries", outcome.counters.retries},
                           {"compacted_blocks", outcome.counters.compacted_blocks},
                           {"modelled_us", outcome.counters.modelled_us},
                           {"frees_left_out", trace.frees_left_out},
                           {"duration_us", trace.duration_us}};
  if (settings.limit != unlimited) object["limit_bytes"] = settings.limit;
  if (!outcome.completed) {
    object["failed_event"] = outcome.events + 1;
    object["asked_bytes"] = trace.events[outcome.events].size;
    object["available_bytes"] = outcome.refusal.available;
  }
  return object;
}

void print_figure(const char* what, const std::string& value, const std::string& note = {}) {
  fmt::print("{:<26} {:>12}{}{}\n", what, value, note.empty() ? "" : "  ", note);
}

std::string times(Size bytes, Size of) {
  if (of == 0) return {};
  return fmt::format("{:.3f}x", static_cast<double>(bytes) / static_cast<double>(of));
}

std::string share(double part_us, std::uint64_t whole_us) {
  if (whole_us == 0) return {};
  const double whole_ms = static_cast<double>(whole_us) / 1000;
  return fmt::format(", {:.2f}% of the trace's {}", 100 * part_us / static_cast<double>(whole_us),
                     whole_ms < 1000 ? fmt::format("{:.3g} ms", whole_ms)
                                     : fmt::format("{:.1f} s", whole_ms / 1000));
}

void print_summary(const PolicySettings& settings, const ReplayTrace& trace,
                   const Outcome& outcome) {
  const auto& counters = outcome.counters;
  print_figure("policy", std::string{name_of(settings.name)});
  print_figure("events replayed", fmt::format("{}", outcome.events),
               outcome.completed ? "all" : fmt::format("of {}", trace.events.size()));
  print_figure("peak of live bytes", print_size(trace.live_peak_bytes));
  if (settings.limit != unlimited) {
    print_figure("limit", print_size(settings.limit), times(settings.limit, trace.live_peak_bytes));
  } else {
    const Size card = replay::memory_of_card(trace, unlimited);
    const bool is_measured = card == replay::measured_card_memory;
    print_figure("limit", is_measured ? "141 GB" : print_size(card), "(the card)");
  }
  print_figure("peak of physical bytes", print_size(counters.physical_peak_bytes),
               times(counters.physical_peak_bytes, trace.live_peak_bytes));
  print_figure("memory taken", fmt::format("{}", counters.creates), "times");
  if (settings.name == PolicyName::Arena) {
    print_figure("free chunks moved", fmt::format("{}", counters.moves));
    print_figure("live blocks moved", fmt::format("{}", counters.compacted_blocks));
  } else if (settings.name != PolicyName::Driver) {
    print_figure("cache released", fmt::format("{}", counters.retries), "times to continue");
  }
  print_figure("time of driver calls", fmt::format("{:.1f} ms", counters.modelled_us / 1000),
               "modelled" + share(counters.modelled_us, trace.duration_us));
  if (trace.frees_left_out > 0) {
    print_figure("frees left out", fmt::format("{}", trace.frees_left_out),
                 "of memory from before the trace");
  }
  print_figure("completed", outcome.completed ? "yes" : "no");
}

// Parses the arguments. Prints a line on standard error if they are wrong.
std::optional<PolicySettings> settings_of(const ReplayWords& words) {
  PolicySettings settings;
  const auto name = std::find(replay::policy_names.begin(), replay::policy_names.end(),
                              std::string_view{words.policy});
  settings.name = static_cast<PolicyName>(name - replay::policy_names.begin());
  settings.grow = words.grow == "tight" ? Grow::Tight : Grow::Loose;
  settings.compact = words.compact == "off"   ? Compact::Off
                     : words.compact == "all" ? Compact::All
                                              : Compact::Auto;
  if (words.chunk.empty()) return settings;
  const auto chunk = parse_size(words.chunk);
  if (!chunk || *chunk == 0 || !is_multiple(*chunk, usual_granule)) {
    tell(exit_usage, "--chunk " + words.chunk,
         chunk ? "not a multiple of 2 MiB" : chunk.error().text());
    return {};
  }
  settings.chunk = *chunk;
  return settings;
}

void say_what_has_no_effect(const CLI::App& command, PolicyName policy) {
  const bool has_chunks = policy == PolicyName::Arena || policy == PolicyName::Expandable;
  for (const auto& [flag, works] :
       {std::pair{"--chunk", has_chunks}, std::pair{"--grow", policy == PolicyName::Arena},
        std::pair{"--compact", policy == PolicyName::Arena}}) {
    if (command.count(flag) != 0 && !works) {
      tell(0, flag, fmt::format("has no effect on the policy {}", name_of(policy)));
    }
  }
}

Outcome played(const ReplayTrace& trace, replay::Policy& policy) {
  ProgressBar bar{"replaying"};
  return replay::play(trace, policy, [&](double share) { bar.show(share); });
}

int replay_trace(const ReplayWords& words, const CLI::App& command) {
  auto settings = settings_of(words);
  if (!settings) return exit_usage;
  std::optional<ReplayLimit> limit;
  if (!words.limit.empty()) {
    const auto parsed = ReplayLimit::parse(words.limit);
    if (!parsed) return tell(exit_usage, "--limit " + words.limit, parsed.error().subject);
    limit = *parsed;
  }
  say_what_has_no_effect(command, settings->name);

  const auto trace = replay::read_trace(words.trace);
  if (!trace) return tell(exit_failed, words.trace, trace.error().text());
  if (!trace->note.empty()) tell(0, words.trace, trace->note);
  if (trace->events.empty()) return tell(exit_failed, words.trace, no_allocation);
  if (limit) settings->limit = limit->of(trace->live_peak_bytes);

  const auto sim = find_sim_directory();
  if (!sim) return tell(exit_failed, "replay", sim.error().text());
  settings->sim_driver = *sim + "/libcuda.so.1";
  const auto policy = replay::make_policy(*settings, *trace);
  if (!policy) return tell(exit_failed, "replay", policy.error().text());

  const Outcome outcome = played(*trace, **policy);
  if (words.json) {
    fmt::print("{}\n", json_text(as_json(*settings, *trace, outcome)));
  } else {
    print_summary(*settings, *trace, outcome);
  }
  if (outcome.completed) return 0;
  Error refusal = outcome.refusal;
  if (refusal.kind == ErrorKind::OutOfMemory && refusal.subject[0] != '\0') {
    refusal.subject = kept_error_text(std::string{"tried: "} + refusal.subject);
  }
  tell(0, fmt::format("event {}", outcome.events + 1), refusal.text());
  return outcome.refusal.kind == ErrorKind::OutOfMemory ? exit_out_of_memory : exit_failed;
}

}  // namespace

void add_replay(CLI::App& app, int& exit_status) {
  auto words = std::make_shared<ReplayWords>();
  CLI::App* command = app.add_subcommand(
      "replay", "replay a trace's allocations and frees against an allocator, without a GPU");
  command->footer(
      "TRACE is a file that `cuvmm run --trace` wrote, a memory snapshot of PyTorch\n"
      "(torch.cuda.memory._dump_snapshot), its memory history or RMM's log as comma-separated\n"
      "values; the last three plain or compressed by gzip. docs/replay.md has the columns.\n"
      "\n"
      "Policies:\n"
      "  arena       cuvmm's own allocator, the real code, on the simulated driver\n"
      "  expandable  a model of PyTorch's allocator with expandable_segments:True\n"
      "  caching     a model of PyTorch's allocator with default settings\n"
      "  driver      cuMemAlloc and cuMemFree of the simulated driver\n"
      "\n"
      "Examples:\n"
      "  cuvmm replay run.trace                                would it fit with cuvmm?\n"
      "  cuvmm replay --policy caching run.trace               and with PyTorch's own allocator?\n"
      "  cuvmm replay --limit 1.02x --grow tight run.trace     in 1.02 times the peak\n"
      "\n"
      "Times are modelled from measurements on one H200, not measured.\n"
      "\n"
      "Exit status: 0 when the whole trace was replayed; 3 when memory was not enough; 2 on wrong\n"
      "usage; 1 when the trace cannot be read or cuvmm fails.");
  command->add_option("--policy", words->policy, "the allocator")
      ->check(CLI::IsMember({"arena", "expandable", "caching", "driver"}))
      ->capture_default_str();
  command
      ->add_option("--chunk", words->chunk,
                   "chunk size (arena), or size of chunks for large blocks (expandable); default: "
                   "the policy's own")
      ->type_name("SIZE");
  command
      ->add_option("--limit", words->limit,
                   "physical memory: 16G, or 1.02x for a multiple of the trace's peak of live "
                   "bytes; default: 141 GB")
      ->type_name("SIZE|FACTORx");
  command
      ->add_option("--grow", words->grow,
                   "arena: loose takes new memory before moving chunks, tight moves first")
      ->check(CLI::IsMember({"loose", "tight"}))
      ->capture_default_str();
  command
      ->add_option("--compact", words->compact,
                   "arena: whether live memory moves under pressure; all also lays small blocks "
                   "out for it")
      ->check(CLI::IsMember({"auto", "all", "off"}))
      ->capture_default_str();
  command->add_flag("--json", words->json, "print one flat JSON object");
  command->add_option("trace", words->trace, "the trace to replay")->required()->type_name("TRACE");
  command->callback(
      [words, command, &exit_status] { exit_status = replay_trace(*words, *command); });
}

}  // namespace cuvmm::cli
