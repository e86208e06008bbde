// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "node/terms.hpp"

namespace cuvmm::node {

enum class TimeRule : std::uint8_t {
  Off,       // no client waits for another
  Share,     // by weight
  Priority,  // the highest priority first, by weight among equals
  Turns,     // the program with a memory turn first, by weight among the others
};

struct TimeTerms {
  std::uint32_t weight = 1;
  int priority = 0;
  std::uint32_t cap = 100;  // the most it gets of each device's time, in percent
  std::string group;        // empty: a party of its own
};

struct TimeSettings {
  TimeRule rule = TimeRule::Off;
  Microseconds cycle = 20'000;  // every waiting party gets the device once, if quanta allow
  Microseconds shortest_quantum = 2'000;
  Microseconds longest_quantum = 20'000;
  Microseconds longest_wait = 1'000'000;    // after which a party is next, whatever the rule says
  Microseconds drain_grace = 5'000;         // for a client to report that its work has ended
  Microseconds outlasts = 100'000;          // how long work may stay in flight after a quantum
  Microseconds settles_within = 3'000'000;  // the same, after the loss of an Open grant
  Microseconds suspended_for = 10'000'000;
  Microseconds remembered = 10'000'000;  // how long a client competes after its last work
  Microseconds window = 1'000;           // device time that a holder may have in flight
  Microseconds shortest_window = 100;    // the least below a higher priority
  Microseconds suspended_window = 10'000;
  Microseconds cap_quantum = 5'000;
};

enum class TimeGrant : std::uint8_t {
  None,  // launches wait
  Held,  // launches pass, with at most the window in flight
  Open,  // no competition: launches pass unchecked
};

struct TimeDecision {
  ClientId client = 0;
  PlaceId device = 0;
  TimeGrant grant = TimeGrant::None;
  Microseconds window = 0;  // 0: no bound
  bool yields = false;      // it defers to clients above it even while it holds the grant

  bool operator==(const TimeDecision&) const = default;
};

// A client counts as wanting a device for this long after its last work, since a program that waits
// for each kernel leaves gaps.
constexpr Microseconds wants_after_work = 500;

// A client's time so far.
struct TimeUse {
  Microseconds held = 0;
  Microseconds waited = 0;

  friend TimeUse operator+(const TimeUse& a, const TimeUse& b) {
    return {.held = a.held + b.held, .waited = a.waited + b.waited};
  }
};

// Decides whose work runs on a machine's devices, and when. Like NodePolicy, a state machine
// without a clock, threads or sockets.
//
// A party is a group of clients, or a client by itself. A party that wants any of its devices gets
// all of them together for a quantum, and is charged for the time until its work has ended. The
// party with the least time for its weight is next (start-time fair queueing). A party that wants
// nothing loses its grant at once, so no device idles while another party wants it.
class TimePolicy {
 public:
  explicit TimePolicy(const TimeSettings& settings = {}) : settings_(settings) {}

  // Each returns the grants that it changed. `now` must never decrease.
  using Decisions = std::vector<TimeDecision>;
  Decisions configure(const TimeSettings& settings, Microseconds now);
  Decisions came(ClientId client, const TimeTerms& terms, Microseconds now);
  Decisions terms_changed(ClientId client, const TimeTerms& terms, Microseconds now);
  Decisions left(ClientId client, Microseconds now);
  // These clients now belong to other groups, and so to other parties.
  Decisions groups_changed(const std::map<ClientId, std::string>& groups, Microseconds now);
  // The client may give the device work from now on.
  Decisions uses(ClientId client, PlaceId device, Microseconds now);
  // The client has work for the device, in flight or waiting, or no longer has any.
  Decisions wants(ClientId client, PlaceId device, bool does, Microseconds now);
  // Nothing that the client launched before it lost the grant is still in flight.
  Decisions drained(ClientId client, PlaceId device, Microseconds now);
  // The client's estimate of when its work in flight ends. The client extends it while work
  // outlasts it, so a drain ends early only if the client has stopped.
  void in_flight_until(ClientId client, Microseconds when);
  // Whether a signal or a debugger has stopped the process, so that it cannot report anything.
  Decisions is_stopped(ClientId client, bool is, Microseconds now);
  // Whether the client has a turn for its memory (NodePolicy).
  Decisions has_memory_turn(ClientId client, bool has, Microseconds now);
  Decisions passed(Microseconds now);

  // The latest time at which the caller must call passed().
  std::optional<Microseconds> next_wake() const;

  const TimeSettings& settings() const { return settings_; }
  bool is_suspended(PlaceId device) const;
  TimeGrant grant_of(ClientId client, PlaceId device) const;
  TimeUse use_of(ClientId client) const;
  // Whether its party cannot get a grant, because it has used up the time that its cap allows.
  bool is_over_cap(ClientId client) const;
  // Clients whose work on the device this client defers to.
  std::vector<ClientId> above(ClientId client, PlaceId device) const;
  // Clients that had work in flight when their grant ended, and have not reported its end.
  std::vector<ClientId> undrained() const;
  // Clients whose party has a grant while others wait.
  std::vector<ClientId> holders_others_wait_for() const;
  bool has_waiting() const;
  std::size_t client_count() const { return clients_.size(); }

 private:
  enum class Phase : std::uint8_t { Idle, Waiting, Running, Draining };
  struct Member {
    std::string party;
    TimeTerms terms;
    std::map<PlaceId, Microseconds> wanted_at;  // when it last wanted each device it uses; 0: never
    std::map<PlaceId, Microseconds> usual_burst;  // how long it usually has work for a device
    std::map<PlaceId, Microseconds> wants;        // since when
    std::set<PlaceId> undrained;
    Microseconds in_flight_until = 0;
    bool is_stopped = false;
    bool has_memory_turn = false;
    std::map<PlaceId, TimeDecision> told;
    TimeUse use;  // as of its party's `counted_until`
  };
  struct Party {
    std::set<ClientId> members;
    std::uint32_t weight = 1;
    int priority = 0;
    std::uint32_t cap = 100;
    // The contested devices that it wants or has wanted lately, and whether it wants any now.
    std::set<PlaceId> devices;
    bool wants = false;
    Phase phase = Phase::Idle;
    bool was_ready = false;  // could have been next at the last decision
    std::set<PlaceId> granted;
    std::uint64_t used = 0;  // by weight; the start tag of its next quantum
    Microseconds since = 0;  // when it began to wait, or got its grant
    // `used`, `credit` and the use of its members are as of this time.
    Microseconds counted_until = 0;
    Microseconds revoked_at = 0;
    Microseconds drains_until = 0;  // at most
    bool goes_first = false;        // it has waited too long
    Microseconds was_free_at = 0;   // when it last lost an Open grant, on any device
    std::int64_t credit = 0;        // if it has a cap; in hundredths of a microsecond

    bool holds() const { return phase == Phase::Running || phase == Phase::Draining; }
  };
  struct Outlasting {
    std::string party;
    std::set<PlaceId> devices;
    Microseconds until = 0;
  };
  using Parties = std::map<std::string, Party>;

  Decisions decide(Microseconds now);
  void move_to_party_of(ClientId client, const std::string& group);
  void leave_party(ClientId client);
  void renew_terms(Party& party);
  void renew_devices();
  bool uses_device(const Party& party, PlaceId device) const;
  bool competes(const Party& party, PlaceId device) const;
  bool is_free(const Party& party, PlaceId device) const;
  // Whether a member is stopped that has work, so that the party could not use a grant.
  bool cannot_run(const Party& party) const;
  bool stands_above_all(const Party& party) const;
  Microseconds window_below_others(const Party& party, PlaceId device) const;
  bool is_blocked_by_turn(const Party& party) const;
  TimeDecision desired(ClientId client, const Member& member, PlaceId device) const;

  void settle();
  bool update_phases();
  bool end_what_is_over();
  bool start_waiting();
  bool is_eligible(const std::string& name, const Party& party) const;
  std::vector<std::string> order_of_waiting() const;
  bool may_start(const Party& party, const std::set<PlaceId>& devices) const;
  bool wants_more(const Party& party) const;
  bool waits_for(const std::string& name, const Party& other, const Party& running) const;
  bool is_waited_for(const Party& party) const;
  bool outranks(const Party& waiting, const Party& running) const;
  void start(Party& party, const std::set<PlaceId>& devices);
  bool would_be_next(const Party& party) const;
  std::uint64_t charge_of(const Party& party) const;
  // What each of its members has used since the party was last counted.
  TimeUse uncounted(const Party& party) const;
  // Counts the time since the last call, by the party's present terms and for its present members.
  // Must precede every change of its terms, members or phase.
  void count_time(Party& party);
  void revoke(Party& party);
  void finish(const std::string& name, Party& party);
  bool is_undrained(const Party& party) const;
  Microseconds drain_by(const Party& party) const;
  void suspend(const std::set<PlaceId>& devices);
  Microseconds quantum_of(const Party& party) const;
  std::uint64_t tag_at(PlaceId device) const;
  static std::int64_t to_credit(Microseconds time) { return static_cast<std::int64_t>(time) * 100; }
  std::int64_t most_credit() const { return to_credit(4 * settings_.cap_quantum); }
  std::int64_t credit_of(const Party& party) const;
  bool is_broke(const Party& party) const;
  Microseconds broke_at(const Party& party) const;

  TimeSettings settings_;
  Microseconds now_ = 0;
  std::map<ClientId, Member> clients_;
  Parties parties_;
  std::vector<Outlasting> outlasting_;
  std::map<PlaceId, std::uint64_t> last_tag_;  // the start tag of the last holder
  std::map<PlaceId, Microseconds> suspended_until_;
};

}  // namespace cuvmm::node
