// SPDX-License-Identifier: Apache-2.0
// From what a trace's requests need under each policy to what to do about it.
#pragma once

#include <string>
#include <vector>

#include "replay/make_policy.hpp"

namespace cuvmm::replay {

// What a policy needs for a trace.
struct PolicyNeed {
  PolicyName policy = PolicyName::Arena;
  Size peak = 0;      // of physical memory, where there is enough
  Size least = 0;     // with which the whole trace was played, of what was tried
  bool fits = false;  // the limit, where there is one
};

struct AdviceFacts {
  Source source = Source::Cuvmm;
  bool is_expandable = false;  // PyTorch ran with expandable_segments:True
  bool was_refused = false;    // the trace tells of a refused request
  Size live_peak = 0;
  Size limit = unlimited;
  std::vector<PolicyNeed> needs;  // the policy in use among them
};

enum class AdviceVerdict : std::uint8_t {
  Fits,           // as it ran
  NothingToGain,  // hardly any memory is lost to fragmentation
  Expandable,     // PyTorch's own setting is the answer, cuvmm is not
  Cuvmm,
  Spill,         // the program needs more than there is at one time
  TooFragmented  // there would be enough, but for every policy some is missing
};
const char* name_of(AdviceVerdict verdict);

struct Advice {
  AdviceVerdict verdict = AdviceVerdict::NothingToGain;
  std::string text;     // plain words
  std::string setting;  // what to set or to type; empty for nothing
};

// What the program ran with.
PolicyName policy_in_use(const AdviceFacts& facts);
// Those that make sense for what recorded the trace, that in use first.
std::vector<PolicyName> policies_for(const AdviceFacts& facts);

Advice advise(const AdviceFacts& facts);

// The trace with the refused requests as if they had been served, and freed at once.
ReplayTrace with_refused_requests(const ReplayTrace& trace);
// The memory that the program had when it was refused some; `unlimited` where that is not said.
Size memory_when_refused(const ReplayTrace& trace);

}  // namespace cuvmm::replay
