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
  Off,       // nobody waits for anybody
  Share,     // by weight
  Priority,  // the highest priority first, by weight among equals
  Turns,     // a program that has a turn for its memory first, by weight among the others
};

struct TimeTerms {
  std::uint32_t weight = 1;
  int priority = 0;
  std::uint32_t cap = 100;  // percent of each device's time that it gets at the most
  std::string group;        // empty: by itself
};

struct TimeSettings {
  TimeRule rule = TimeRule::Off;
  Microseconds cycle = 20'000;  // all that want the device have had it once, if quanta allow
  Microseconds shortest_quantum = 2'000;
  Microseconds longest_quantum = 20'000;
  Microseconds longest_wait = 1'000'000;    // then it is the next, whatever the rule says
  Microseconds drain_grace = 5'000;         // for reporting that work has ended
  Microseconds outlasts = 100'000;          // work in flight beyond a quantum
  Microseconds settles_within = 3'000'000;  // the same, launched while nobody competed
  Microseconds suspended_for = 10'000'000;
  Microseconds remembered = 10'000'000;  // who has not wanted a device for so long competes no more
  Microseconds window = 1'000;           // device time that a holder has in flight
  Microseconds background_window = 200;  // the same, below others' priority
  Microseconds suspended_window = 10'000;
  Microseconds cap_quantum = 5'000;
};

enum class TimeGrant : std::uint8_t {
  None,  // launches wait
  Held,  // launches pass, with so much in flight
  Open,  // nobody else competes: launches pass without a look
};

struct TimeDecision {
  ClientId client = 0;
  PlaceId device = 0;
  TimeGrant grant = TimeGrant::None;
  Microseconds window = 0;  // 0: no bound
};

// What a client has had so far.
struct TimeUse {
  Microseconds held = 0;
  Microseconds waited = 0;
};

// Whose work runs on the devices of a machine, and when. A state machine without a clock, threads
// or sockets, as NodePolicy is.
//
// A group of clients, or a client by itself, is a party. A party that wants any of its devices gets
// all of them together, for a quantum, and is charged for the time until its work has ended. The
// party with the least time for its weight is next (start-time fair queueing). A party that wants
// nothing loses its grant at once, so no device idles while somebody wants it.
class TimePolicy {
 public:
  explicit TimePolicy(const TimeSettings& settings = {}) : settings_(settings) {}

  // Each returns what has changed. `now` never goes back.
  using Decisions = std::vector<TimeDecision>;
  Decisions configure(const TimeSettings& settings, Microseconds now);
  Decisions came(ClientId client, const TimeTerms& terms, Microseconds now);
  Decisions terms_changed(ClientId client, const TimeTerms& terms, Microseconds now);
  Decisions left(ClientId client, Microseconds now);
  // It may give the device work from now on.
  Decisions uses(ClientId client, PlaceId device, Microseconds now);
  // It has work there, in flight or waiting, or none any more.
  Decisions wants(ClientId client, PlaceId device, bool does, Microseconds now);
  // Nothing that it launched before it lost the grant is in flight.
  Decisions drained(ClientId client, PlaceId device, Microseconds now);
  // As far as it knows, its work in flight ends then.
  void in_flight_until(ClientId client, Microseconds when);
  // The system has stopped it: it cannot report anything.
  Decisions is_stopped(ClientId client, bool is, Microseconds now);
  // It has a turn for its memory (NodePolicy).
  Decisions has_memory_turn(ClientId client, bool has, Microseconds now);
  Decisions passed(Microseconds now);

  // When it needs passed() at the latest.
  std::optional<Microseconds> next_wake() const;

  const TimeSettings& settings() const { return settings_; }
  bool is_suspended(PlaceId device) const;
  TimeGrant grant_of(ClientId client, PlaceId device) const;
  TimeUse use_of(ClientId client) const;
  // Work of these was in flight when their grant ended, and they have not reported its end.
  std::vector<ClientId> undrained() const;
  bool has_waiting() const;
  std::size_t client_count() const { return clients_.size(); }

 private:
  enum class Phase : std::uint8_t { Idle, Waiting, Running, Draining };
  struct Member {
    std::string party;
    TimeTerms terms;
    std::map<PlaceId, Microseconds> wanted_at;  // of each device that it uses; 0: never
    std::set<PlaceId> wants;
    std::set<PlaceId> undrained;
    Microseconds in_flight_until = 0;
    bool is_stopped = false;
    bool has_memory_turn = false;
    std::map<PlaceId, TimeDecision> told;
  };
  struct Party {
    std::set<ClientId> members;
    std::uint32_t weight = 1;
    int priority = 0;
    std::uint32_t cap = 100;
    // Of devices that others compete for, those that it wants or wanted lately, and whether it
    // wants any now.
    std::set<PlaceId> devices;
    bool wants = false;
    Phase phase = Phase::Idle;
    bool was_ready = false;  // to get its devices next
    std::set<PlaceId> granted;
    std::uint64_t used = 0;  // by weight; the start tag of what it gets next
    Microseconds since = 0;  // that it waits, or has the grant
    Microseconds revoked_at = 0;
    Microseconds drain_by = 0;
    bool goes_first = false;       // it waited too long
    Microseconds was_free_at = 0;  // of the rules, on any device
    std::int64_t credit = 0;       // of a party with a cap, at `credit_at`
    Microseconds credit_at = 0;
    TimeUse use;
  };
  struct Outlasting {
    std::string party;
    std::set<PlaceId> devices;
    Microseconds until = 0;
  };
  using Parties = std::map<std::string, Party>;

  Decisions decide(Microseconds now);
  void renew_terms(Party& party);
  void renew_devices();
  bool uses_device(const Party& party, PlaceId device) const;
  bool competes(const Party& party, PlaceId device) const;
  bool is_free(const Party& party, PlaceId device) const;
  bool stands_above_all(const Party& party) const;
  bool is_below_others(const Party& party, PlaceId device) const;
  bool is_kept_out_by_turn(const Party& party) const;
  TimeDecision desired(ClientId client, const Member& member, PlaceId device) const;

  void settle();
  bool update_phases();
  bool end_what_is_over();
  bool start_waiting();
  bool is_eligible(const std::string& name, const Party& party) const;
  std::vector<std::string> order_of_waiting() const;
  bool may_start(const Party& party, const std::set<PlaceId>& devices) const;
  bool is_waited_for(const Party& party) const;
  bool outranks(const Party& waiting, const Party& running) const;
  void start(Party& party, const std::set<PlaceId>& devices);
  void revoke(Party& party);
  void finish(const std::string& name, Party& party);
  bool is_undrained(const Party& party) const;
  void suspend(const std::set<PlaceId>& devices);
  Microseconds quantum_of(const Party& party) const;
  std::uint64_t tag_at(PlaceId device) const;
  std::int64_t credit_of(const Party& party) const;
  bool is_broke(const Party& party) const;
  Microseconds broke_at(const Party& party) const;

  TimeSettings settings_;
  Microseconds now_ = 0;
  std::map<ClientId, Member> clients_;
  Parties parties_;
  std::vector<Outlasting> outlasting_;
  std::map<PlaceId, std::uint64_t> last_tag_;  // of the last holder, at its start
  std::map<PlaceId, Microseconds> suspended_until_;
};

}  // namespace cuvmm::node
