// SPDX-License-Identifier: Apache-2.0
// Gives advice from a trace's memory needs under each policy.
#pragma once

#include <string>
#include <vector>

#include "replay/make_policy.hpp"

namespace cuvmm::replay {

// The memory that a policy needs to serve a trace.
struct PolicyNeed {
  PolicyName policy = PolicyName::Arena;
  Size peak = 0;      // physical memory, if unlimited
  Size least = 0;     // the smallest memory tried that completed the trace; `unlimited`: none did
  bool fits = false;  // whether it fits the limit, if there is one
  Compact compact = Compact::Auto;  // of the arena
};
std::string name_of(const PolicyNeed& need);

// Where the limit comes from: the trace itself, or the user, who asks about another card.
enum class LimitOrigin : std::uint8_t { Trace, User };

struct AdviceFacts {
  Source source = Source::Cuvmm;
  bool is_expandable = false;     // PyTorch ran with expandable_segments:True
  bool was_refused = false;       // the trace contains a refused request
  bool lacked_memory = false;     // and it did not cope with one: see with_refused_requests()
  Size live_peak = 0;             // as if such requests had been served
  Size largest_request = 0;       // served or refused
  Size limit = unlimited;         // without `own_chunks`
  Size own_chunks = 0;            // held by the program with cuMemCreate when it was refused memory
  Size device_memory = 0;         // if known, and the limit is the program's own
  std::vector<PolicyNeed> needs;  // includes the policy in use
  LimitOrigin limit_origin = LimitOrigin::Trace;
  Size memory_when_refused = unlimited;  // see below
};

enum class AdviceVerdict : std::uint8_t {
  Fits,           // it fits as it ran
  NothingToGain,  // hardly any memory is lost to fragmentation
  Expandable,     // PyTorch's own setting solves it, without cuvmm
  Cuvmm,
  Spill,         // the program needs more at one time than there is
  TooLarge,      // so does one of its requests
  TooFragmented  // there is enough in total, but not enough under any policy
};
const char* name_of(AdviceVerdict verdict);

struct Advice {
  AdviceVerdict verdict = AdviceVerdict::NothingToGain;
  std::string text;     // plain language
  std::string setting;  // a setting or command; empty: none
};

// The policy that the program ran with.
PolicyName policy_in_use(const AdviceFacts& facts);
// The policies that make sense for the trace's source, the one in use first.
std::vector<PolicyName> policies_for(const AdviceFacts& facts);

// Whether cuvmm with VMM_COMPACT=all could need less than with its usual settings.
bool may_gain_by_compaction(const AdviceFacts& facts);

Advice advise(const AdviceFacts& facts);

// The trace as if its refused requests had been served and freed at once. Leaves out refusals after
// which the program requested as much again: it has coped with them, as when it probes for free
// memory.
ReplayTrace with_refused_requests(const ReplayTrace& trace);
// The most memory that the program could have when it was refused some, besides its own chunks;
// `unlimited` if that is unknown or nothing was refused.
Size memory_when_refused(const ReplayTrace& trace);
// The least that the program's own chunks took when it was refused memory.
Size own_chunks_when_refused(const ReplayTrace& trace);
// cuvmm's limit for that much memory, in whole chunks; `unlimited` stays.
Size limit_in_chunks(Size memory);

}  // namespace cuvmm::replay
