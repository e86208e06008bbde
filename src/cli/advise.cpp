// SPDX-License-Identifier: Apache-2.0
// cuvmm advise: replays a trace with every policy and recommends one.
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "base/fd.hpp"
#include "cli/commands.hpp"
#include "cli/install_places.hpp"
#include "cli/json_text.hpp"
#include "cli/output.hpp"
#include "cli/replay_request.hpp"
#include "replay/advice.hpp"
#include "replay/read_trace.hpp"

namespace cuvmm::cli {
namespace {

using replay::AdviceFacts;
using replay::PolicyName;
using replay::PolicyNeed;
using replay::ReplayTrace;

struct AdviseRequest {
  std::string trace;
  std::string limit;
  bool json = false;
};

// Multiples of the peak of live bytes.
constexpr std::array tried_shares{1.0, 1.01, 1.02, 1.05, 1.1, 1.25, 1.5, 2.0};

struct Played {
  bool completed = false;
  Size peak = 0;
};

// Replays in a child process, since a process can have only one simulated driver.
class Player {
 public:
  Player(const ReplayTrace& trace, std::string sim_driver)
      : trace_(trace), sim_driver_(std::move(sim_driver)) {}

  // Replays with the policy that `need` names.
  Result<Played> play(const PolicyNeed& need, Size limit) const {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return no_process();
    const Fd reading{ends[0]};
    Fd writing{ends[1]};
    const pid_t child = ::fork();
    if (child < 0) return no_process();
    if (child == 0) {
      const Played played = play_here(need, limit);
      const bool is_told = ::write(writing.number(), &played, sizeof played) == sizeof played;
      ::_exit(is_told ? 0 : 1);
    }
    writing = Fd{};
    Played played;
    const ssize_t got = ::read(reading.number(), &played, sizeof played);
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (got == sizeof played && status == 0) return played;
    return Error::invalid("replay a trace", "the process that replayed it failed");
  }

 private:
  static Error no_process() {
    return {.kind = ErrorKind::SystemFailed, .system_code = errno, .doing = "start a process"};
  }
  Played play_here(const PolicyNeed& need, Size limit) const {
    const auto made = replay::make_policy(
        {.name = need.policy, .limit = limit, .compact = need.compact, .sim_driver = sim_driver_},
        trace_);
    if (!made) {
      say(made.error().text());
      ::_exit(1);
    }
    const replay::Outcome outcome = replay::play(trace_, **made);
    if (!outcome.completed && outcome.refusal.kind != ErrorKind::OutOfMemory) {
      say(outcome.refusal.text());
      ::_exit(1);
    }
    return {.completed = outcome.completed, .peak = outcome.counters.physical_peak_bytes};
  }

  const ReplayTrace& trace_;
  const std::string sim_driver_;
};

// The smallest of the tried limits with which the policy completes. A policy that completes with
// some amount of memory is assumed to complete with more.
Result<Size> least_of(const Player& player, const PolicyNeed& need, Size live) {
  const auto limit_of = [&](double share) {
    return round_up(static_cast<Size>(static_cast<double>(live) * share), usual_granule);
  };
  std::size_t low = 0;
  std::size_t high = tried_shares.size();
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    const Size limit = std::max(limit_of(tried_shares[middle]), usual_granule);
    if (limit >= need.peak || TRY(player.play(need, limit)).completed) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  if (low == tried_shares.size()) return need.peak;
  return std::min(need.peak, limit_of(tried_shares[low]));
}

// Finds out what the policy that `need` names needs.
Result<void> measure(PolicyNeed& need, const AdviceFacts& facts, const Player& player) {
  const Played played = TRY(player.play(need, unlimited));
  need.peak = played.peak;
  need.least = played.completed ? TRY(least_of(player, need, facts.live_peak)) : unlimited;
  need.fits = need.least != unlimited && need.least <= facts.limit;
  // The limit lies between two of the tried ones, or beyond the modelled card, so try the limit
  // itself; for cuvmm, the one that the advice names.
  const Size limit =
      need.policy == PolicyName::Arena ? replay::limit_in_chunks(facts.limit) : facts.limit;
  if (!need.fits && facts.limit != unlimited && limit >= std::max(facts.live_peak, usual_granule) &&
      TRY(player.play(need, limit)).completed) {
    need.fits = true;
    need.least = limit;
  }
  return {};
}

Result<void> measure_all(AdviceFacts& facts, const Player& player) {
  const auto policies = replay::policies_for(facts);
  ProgressBar bar{"replaying"};
  for (const PolicyName policy : policies) {
    bar.show(static_cast<double>(facts.needs.size()) / static_cast<double>(policies.size() + 1));
    PolicyNeed need{.policy = policy};
    TRY(measure(need, facts, player));
    facts.needs.push_back(need);
  }
  if (replay::may_gain_by_compaction(facts)) {
    PolicyNeed need{.policy = PolicyName::Arena, .compact = Compact::All};
    TRY(measure(need, facts, player));
    facts.needs.push_back(need);
  }
  return {};
}

void print_advice(const AdviceFacts& facts, const ReplayTrace& trace,
                  const replay::Advice& advice) {
  fmt::print("{}: {} allocation{}, {} held at most{}\n", name_of(trace.source), trace.allocations,
             trace.allocations == 1 ? "" : "s", print_size(facts.live_peak),
             facts.lacked_memory ? ", with the requests that were refused" : "");
  if (trace.reserved_peak_bytes > 0) {
    fmt::print("PyTorch reserved {}\n", print_size(trace.reserved_peak_bytes));
  }
  const bool has_limit = facts.limit != unlimited;
  if (has_limit) {
    fmt::print("limit {}{}\n", print_size(facts.limit),
               facts.own_chunks == 0 ? ""
                                     : fmt::format(", besides the {} that the program took with "
                                                   "cuMemCreate",
                                                   print_size(facts.own_chunks)));
  }
  fmt::print("\n{:<12} {:>14} {:>21}{}\n", "policy", "unlimited", "least that suffices",
             has_limit ? "   within the limit" : "");
  for (const PolicyNeed& need : facts.needs) {
    const char* const fits = need.fits ? "   yes" : "   no";
    fmt::print("{:<12} {:>14} {:>21}{}\n", name_of(need), print_size(need.peak),
               need.least == unlimited ? "none tried" : print_size(need.least),
               has_limit ? fits : "");
  }
  fmt::print("\n{}\n", advice.text);
  if (!advice.setting.empty()) fmt::print("\n  {}\n", advice.setting);
}

nlohmann::json as_json(const AdviceFacts& facts, const ReplayTrace& trace,
                       const replay::Advice& advice) {
  auto policies = nlohmann::json::array();
  for (const PolicyNeed& need : facts.needs) {
    nlohmann::json one = {{"policy", name_of(need.policy)},
                          {"compact", need.compact == Compact::All ? "all" : "auto"},
                          {"physical_peak_bytes", need.peak},
                          {"least_bytes", nullptr},
                          {"fits", nullptr}};
    if (need.least != unlimited) one["least_bytes"] = need.least;
    if (facts.limit != unlimited) one["fits"] = need.fits;
    policies.push_back(std::move(one));
  }
  nlohmann::json object = {{"schema", 1},
                           {"source", name_of(trace.source)},
                           {"live_peak_bytes", facts.live_peak},
                           {"reserved_peak_bytes", trace.reserved_peak_bytes},
                           {"refused_allocations", trace.refusals.size()},
                           {"limit_bytes", nullptr},
                           {"policy_in_use", name_of(replay::policy_in_use(facts))},
                           {"policies", std::move(policies)},
                           {"verdict", name_of(advice.verdict)},
                           {"setting", advice.setting},
                           {"text", advice.text}};
  if (facts.limit != unlimited) object["limit_bytes"] = facts.limit;
  return object;
}

int fail(int status, const std::string& what, const Error& error) {
  say(what + ": " + error.text());
  return status;
}

int give_advice(const AdviseRequest& request) {
  std::optional<ReplayLimit> limit;
  if (!request.limit.empty()) {
    const auto parsed = ReplayLimit::parse(request.limit);
    if (!parsed) {
      say("--limit " + request.limit + ": " + parsed.error().subject);
      return exit_usage;
    }
    limit = *parsed;
  }
  const auto trace = replay::read_trace(request.trace);
  if (!trace) return fail(exit_failed, request.trace, trace.error());
  if (!trace->note.empty()) say(request.trace + ": " + trace->note);
  const ReplayTrace served = replay::with_refused_requests(*trace);
  if (served.events.empty()) {
    say(request.trace + ": " + no_allocation);
    return exit_failed;
  }
  const auto sim = find_sim_directory();
  if (!sim) return fail(exit_failed, "advise", sim.error());

  AdviceFacts facts{
      .source = trace->source,
      .is_expandable = trace->is_expandable,
      .was_refused = !trace->refusals.empty(),
      .lacked_memory = served.allocations != trace->allocations,
      .live_peak = served.live_peak_bytes,
      .largest_request = served.largest_bytes,
      .limit = limit ? limit->of(served.live_peak_bytes) : replay::memory_when_refused(*trace),
      .own_chunks = limit ? 0 : replay::own_chunks_when_refused(*trace),
      .device_memory = limit ? 0 : trace->memory.value_or(0),
      .needs = {},
      .limit_origin = limit ? replay::LimitOrigin::User : replay::LimitOrigin::Trace,
      .memory_when_refused = replay::memory_when_refused(*trace)};
  const auto measured = measure_all(facts, Player{served, *sim + "/libcuda.so.1"});
  if (!measured) return fail(exit_failed, "advise", measured.error());
  const replay::Advice advice = replay::advise(facts);
  if (request.json) {
    fmt::print("{}\n", json_text(as_json(facts, *trace, advice)));
  } else {
    print_advice(facts, *trace, advice);
  }
  return 0;
}

}  // namespace

void add_advise(CLI::App& app, int& exit_status) {
  auto request = std::make_shared<AdviseRequest>();
  CLI::App* command =
      app.add_subcommand("advise", "recommend an allocator, a limit and settings for a trace");
  command->footer(
      "TRACE is what `cuvmm replay` reads: a trace of cuvmm, a memory snapshot or history of\n"
      "PyTorch, a log of RMM. cuvmm replays it under each applicable policy, without a limit and\n"
      "with several. \"unlimited\" is what a policy uses without a limit; \"least that suffices\" "
      "is\n"
      "the smallest of the tried limits under which every request succeeds. \"arena, all\" is\n"
      "cuvmm with VMM_COMPACT=all, tried only if its usual settings leave something to gain.\n"
      "\n"
      "Examples:\n"
      "  cuvmm advise snapshot.pickle                   after an out-of-memory error in PyTorch\n"
      "  cuvmm advise run.trace --limit 16G             would it run on a card of 16 GiB?\n"
      "  cuvmm advise --json run.trace | jq .verdict\n"
      "\n"
      "Verdicts: fits, nothing_to_gain, expandable_segments, cuvmm, spill, too_large, "
      "too_fragmented.\n"
      "PyTorch's allocators are models; no trace records the memory of contexts and libraries.\n"
      "\n"
      "Exit status: 0 with any advice; 1 when the trace cannot be read; 2 on wrong usage.");
  command
      ->add_option(
          "--limit", request->limit,
          "physical memory: 16G, or 1.02x for a multiple of the trace's peak of live "
          "bytes; default: the most that the program could have when a request was refused, if "
          "one was")
      ->type_name("SIZE|FACTORx");
  command->add_flag("--json", request->json, "print one JSON object");
  command->add_option("trace", request->trace, "the trace to analyse")
      ->required()
      ->type_name("TRACE");
  command->callback([request, &exit_status] { exit_status = give_advice(*request); });
}

}  // namespace cuvmm::cli
