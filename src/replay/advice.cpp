// SPDX-License-Identifier: Apache-2.0
#include "replay/advice.hpp"

#include <algorithm>
#include <optional>

#include "base/text.hpp"

namespace cuvmm::replay {
namespace {

bool is_of_pytorch(Source source) {
  return source == Source::PytorchTable || source == Source::PytorchSnapshot;
}

const PolicyNeed* need_of(const AdviceFacts& facts, PolicyName policy,
                          Compact compact = Compact::Auto) {
  const auto found = std::find_if(
      facts.needs.begin(), facts.needs.end(),
      [&](const PolicyNeed& need) { return need.policy == policy && need.compact == compact; });
  return found == facts.needs.end() ? nullptr : &*found;
}

// Within 5%, which is less than the memory that programs need in addition: modules, libraries, the
// context.
bool is_about(Size a, Size b) {
  return a <= saturating_sum(b, b / 20);
}

// "12.2 GiB", or "more than 131 GiB" if the modelled card was too small for the policy.
std::string text_of(const PolicyNeed& need) {
  return need.least == unlimited ? "more than " + print_size(need.peak) : print_size(need.least);
}

constexpr const char* expandable_setting = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True";

// "cuvmm run --frameworks --limit 16G --spill host -- python train.py".
std::string command_line(const AdviceFacts& facts, const char* more = "") {
  const bool pytorch = is_of_pytorch(facts.source);
  std::string line = "cuvmm run";
  if (pytorch) line += " --frameworks";
  if (facts.limit != unlimited) {
    const Size limit = limit_in_chunks(saturating_sum(facts.limit, facts.own_chunks));
    line += " --limit " + std::to_string(limit / MiB) + "M";
  }
  return line + more + (pytorch ? " -- python train.py" : " -- ./program");
}

std::string in_use_text(const AdviceFacts& facts) {
  if (!is_of_pytorch(facts.source)) return "allocating from the driver";
  return facts.is_expandable ? "PyTorch's allocator with expandable segments"
                             : "PyTorch's allocator with default settings";
}

std::string with_capital(std::string text) {
  if (!text.empty()) text.front() = upper(text.front());
  return text;
}

// "1.20 GiB", or "4.00 KiB more than 1.00 GiB" if both look alike when rounded.
std::string size_beyond(Size size, Size limit) {
  std::string text = print_size(size);
  if (size <= limit || text != print_size(limit)) return text;
  return print_size(size - limit) + " more than " + text;
}

Advice spill(const AdviceFacts& facts) {
  std::string text = facts.lacked_memory
                         ? "With the requests that were refused, the program would hold "
                         : "The program holds ";
  text += print_size(facts.live_peak) + " at one time, ";
  text += print_size(facts.live_peak) == print_size(facts.limit)
              ? print_size(facts.live_peak - facts.limit) + " more than there is"
              : "and only " + print_size(facts.limit) + " is available";
  text +=
      ": no allocator makes that fit. cuvmm can keep the rest in host memory, but the program runs "
      "slower; otherwise ask for less at a time (a smaller batch, checkpointing), or use a larger "
      "card.";
  if (facts.lacked_memory) {
    text +=
        " If the program only probes for free memory and works without what it was refused, it "
        "needs no change; --limit asks about a card of another size.";
  }
  return {.verdict = AdviceVerdict::Spill,
          .text = std::move(text),
          .setting = command_line(facts, " --spill host")};
}

// A request beyond the program's own limit can be served from elsewhere.
Size largest_that_can_be_served(const AdviceFacts& facts) {
  return std::max(saturating_sum(facts.limit, facts.own_chunks), facts.device_memory);
}

Advice too_large(const AdviceFacts& facts) {
  const Size there_is = largest_that_can_be_served(facts);
  return {.verdict = AdviceVerdict::TooLarge,
          .text = "No setting serves a single request of " +
                  size_beyond(facts.largest_request, there_is) + ": only " + print_size(there_is) +
                  " is available, and spilling does not help a request that is larger than that. "
                  "Ask for less at a time, or use a larger card.",
          .setting = {}};
}

Advice fits(const AdviceFacts& facts, const PolicyNeed& now) {
  std::string text = "It fits: " + in_use_text(facts) + " needs " + text_of(now) + " of " +
                     print_size(facts.limit) + ". cuvmm is not needed for it.";
  if (facts.was_refused && facts.limit_origin == LimitOrigin::Trace) {
    text +=
        " It was still refused memory, and the trace does not say why. Other programs, the context "
        "or libraries may have held part of the card (see `cuvmm top` and nvidia-smi), another "
        "limit than VMM_LIMIT may have applied, or the driver's pool may have been fragmented.";
  } else if (facts.was_refused) {
    text += " When it was recorded, it ran out of memory";
    if (facts.memory_when_refused != unlimited) {
      text += " with " + print_size(facts.memory_when_refused) + " available";
    }
    text += ".";
  }
  return {.verdict = AdviceVerdict::Fits, .text = std::move(text), .setting = {}};
}

Advice expandable(const PolicyNeed& now, const PolicyNeed& need, const PolicyNeed& arena) {
  std::string text = "PyTorch's allocator with default settings needs " + text_of(now) +
                     " because it cannot join free pieces. With expandable segments it needs " +
                     text_of(need);
  if (is_about(need.least, arena.least)) {
    text += ". Set that; cuvmm would save ";
    text += arena.least < need.least ? "little more (" + text_of(arena) + ")."
                                     : "no more for PyTorch alone.";
  } else {
    text += ", which is enough within this limit. cuvmm would need " + text_of(arena) + ".";
  }
  return {
      .verdict = AdviceVerdict::Expandable, .text = std::move(text), .setting = expandable_setting};
}

// `arena` is cuvmm with the settings that it takes.
Advice cuvmm_serves(const AdviceFacts& facts, const PolicyNeed& now, const PolicyNeed& arena) {
  const char* const needs = is_of_pytorch(facts.source) ? " needs " : ", the program needs ";
  const bool compacts_all = arena.compact == Compact::All;
  const char* const by = compacts_all
                             ? "; under cuvmm, with small blocks laid out for compaction, it needs "
                             : "; under cuvmm it needs ";
  return {
      .verdict = AdviceVerdict::Cuvmm,
      .text = with_capital(in_use_text(facts)) + needs + text_of(now) + by + text_of(arena) + ".",
      .setting = (compacts_all ? "VMM_COMPACT=all " : "") + command_line(facts)};
}

Advice too_fragmented(const AdviceFacts& facts) {
  const auto best =
      std::min_element(facts.needs.begin(), facts.needs.end(),
                       [](const PolicyNeed& a, const PolicyNeed& b) { return a.least < b.least; });
  return {
      .verdict = AdviceVerdict::TooFragmented,
      .text = "The program never holds more than " + print_size(facts.live_peak) +
              ", but no policy serves it within " + print_size(facts.limit) + ": the best (" +
              name_of(*best) + ") needs " +
              (best->least == unlimited ? text_of(*best) : size_beyond(best->least, facts.limit)) +
              ". cuvmm can keep the rest in host memory.",
      .setting = command_line(facts, " --spill host")};
}

Advice nothing_to_gain(const AdviceFacts& facts, const PolicyNeed& now) {
  const std::string needs = in_use_text(facts) + " needs " + text_of(now) + " for the " +
                            print_size(facts.live_peak) + " that the program holds. ";
  return {.verdict = AdviceVerdict::NothingToGain,
          .text = is_about(now.least, facts.live_peak)
                      ? "Hardly any memory is lost to fragmentation: " + needs +
                            "Neither cuvmm nor any other setting would reduce that."
                      : with_capital(needs) + "No tried allocator needs less.",
          .setting = {}};
}

Advice within_limit(const AdviceFacts& facts, const PolicyNeed& now, const PolicyNeed& arena,
                    const PolicyNeed* other) {
  if (facts.largest_request > largest_that_can_be_served(facts)) return too_large(facts);
  if (facts.live_peak > facts.limit) return spill(facts);
  if (now.fits) return fits(facts, now);
  if (other != nullptr && other->fits) return expandable(now, *other, arena);
  if (arena.fits) return cuvmm_serves(facts, now, arena);
  const PolicyNeed* const compacting = need_of(facts, PolicyName::Arena, Compact::All);
  return compacting != nullptr && compacting->fits ? cuvmm_serves(facts, now, *compacting)
                                                   : too_fragmented(facts);
}

Advice without_limit(const AdviceFacts& facts, const PolicyNeed& now, const PolicyNeed& arena,
                     const PolicyNeed* other) {
  if (is_about(now.least, facts.live_peak)) return nothing_to_gain(facts, now);
  if (other != nullptr && !is_about(now.least, other->least) && is_about(other->least, arena.least))
    return expandable(now, *other, arena);
  if (!is_about(now.least, arena.least)) return cuvmm_serves(facts, now, arena);
  const PolicyNeed* const compacting = need_of(facts, PolicyName::Arena, Compact::All);
  return compacting != nullptr && !is_about(now.least, compacting->least)
             ? cuvmm_serves(facts, now, *compacting)
             : nothing_to_gain(facts, now);
}

// For each refusal, the largest later request, granted or not.
std::vector<Size> largest_after_refusals(const ReplayTrace& trace) {
  std::vector<Size> largest(trace.refusals.size());
  std::size_t event = trace.events.size();
  Size so_far = 0;
  for (std::size_t i = trace.refusals.size(); i-- > 0;) {
    while (event > trace.refusals[i].before) {
      const ReplayEvent& later = trace.events[--event];
      if (later.action == Action::Allocate) so_far = std::max<Size>(so_far, later.size);
    }
    largest[i] = so_far;
    so_far = std::max<Size>(so_far, trace.refusals[i].size);
  }
  return largest;
}

}  // namespace

const char* name_of(AdviceVerdict verdict) {
  switch (verdict) {
    case AdviceVerdict::Fits:
      return "fits";
    case AdviceVerdict::NothingToGain:
      return "nothing_to_gain";
    case AdviceVerdict::Expandable:
      return "expandable_segments";
    case AdviceVerdict::Cuvmm:
      return "cuvmm";
    case AdviceVerdict::Spill:
      return "spill";
    case AdviceVerdict::TooLarge:
      return "too_large";
    case AdviceVerdict::TooFragmented:
      return "too_fragmented";
  }
  return "";
}

std::string name_of(const PolicyNeed& need) {
  const std::string name{name_of(need.policy)};
  return need.compact == Compact::All ? name + ", all" : name;
}

PolicyName policy_in_use(const AdviceFacts& facts) {
  if (!is_of_pytorch(facts.source)) return PolicyName::Driver;
  return facts.is_expandable ? PolicyName::Expandable : PolicyName::Caching;
}

std::vector<PolicyName> policies_for(const AdviceFacts& facts) {
  if (!is_of_pytorch(facts.source)) return {PolicyName::Driver, PolicyName::Arena};
  if (facts.is_expandable) return {PolicyName::Expandable, PolicyName::Caching, PolicyName::Arena};
  return {PolicyName::Caching, PolicyName::Expandable, PolicyName::Arena};
}

bool may_gain_by_compaction(const AdviceFacts& facts) {
  const PolicyNeed* const arena = need_of(facts, PolicyName::Arena);
  if (arena == nullptr) return false;
  if (facts.limit == unlimited) return !is_about(arena->least, facts.live_peak);
  const bool does_any_fit = std::any_of(facts.needs.begin(), facts.needs.end(),
                                        [](const PolicyNeed& need) { return need.fits; });
  return !does_any_fit && facts.live_peak <= facts.limit;
}

Advice advise(const AdviceFacts& facts) {
  const PolicyNeed* const now = need_of(facts, policy_in_use(facts));
  const PolicyNeed* const arena = need_of(facts, PolicyName::Arena);
  if (now == nullptr || arena == nullptr) return {};
  const bool may_expand = is_of_pytorch(facts.source) && !facts.is_expandable;
  const PolicyNeed* const other = may_expand ? need_of(facts, PolicyName::Expandable) : nullptr;
  return facts.limit == unlimited ? without_limit(facts, *now, *arena, other)
                                  : within_limit(facts, *now, *arena, other);
}

ReplayTrace with_refused_requests(const ReplayTrace& trace) {
  const std::vector<Size> largest_after = largest_after_refusals(trace);
  ReplayTrace served = trace;
  served.events.clear();
  auto refusal = trace.refusals.begin();
  for (std::size_t i = 0; i <= trace.events.size(); ++i) {
    for (; refusal != trace.refusals.end() && refusal->before == i; ++refusal) {
      const auto number = static_cast<std::size_t>(refusal - trace.refusals.begin());
      if (refusal->size <= largest_after[number]) continue;
      ReplayEvent event{.time_us = refusal->time_us,
                        .size = refusal->size,
                        .block = served.allocations++,
                        .stream = refusal->stream,
                        .action = Action::Allocate,
                        .kind = refusal->kind};
      served.addresses.push_back(0);
      served.events.push_back(event);
      event.action = Action::Free;
      served.events.push_back(event);
      served.live_peak_bytes =
          std::max(served.live_peak_bytes, saturating_sum(refusal->live, refusal->size));
      served.largest_bytes = std::max(served.largest_bytes, refusal->size);
    }
    if (i < trace.events.size()) served.events.push_back(trace.events[i]);
  }
  served.refusals.clear();
  return served;
}

Size memory_when_refused(const ReplayTrace& trace) {
  std::optional<Size> most;
  for (const RefusedAllocation& refusal : trace.refusals) {
    const Size held = std::max(static_cast<Size>(refusal.reserved), refusal.live);
    auto had = refusal.available ? saturating_sum(held, *refusal.available) : trace.memory;
    if (refusal.limit) had = std::min(had.value_or(unlimited), *refusal.limit);
    if (!had) continue;
    *had -= std::min(refusal.own_chunks, *had);
    most = std::max(most.value_or(0), *had);
  }
  return most.value_or(unlimited);
}

Size own_chunks_when_refused(const ReplayTrace& trace) {
  const auto least =
      std::min_element(trace.refusals.begin(), trace.refusals.end(),
                       [](const auto& a, const auto& b) { return a.own_chunks < b.own_chunks; });
  return least == trace.refusals.end() ? 0 : least->own_chunks;
}

Size limit_in_chunks(Size memory) {
  if (memory == unlimited) return unlimited;
  return std::max(round_down(memory, usual_granule), usual_granule);
}

}  // namespace cuvmm::replay
