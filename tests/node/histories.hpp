// SPDX-License-Identifier: Apache-2.0
// Random histories of clients, checked against the test's own books.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <vector>

#include "node/policy.hpp"

namespace cuvmm::test {

using namespace node;

enum class Manners : std::uint8_t {
  Obedient,  // true reports, answers in time
  Any,       // also lies, stalls, floods, foreign use and work that outlasts turns
};

class NodeHistory {
 public:
  NodeHistory(std::uint64_t seed, Manners manners);

  void run(std::uint64_t events);
  // All clients leave: the policy may keep nothing of them.
  void end();

  std::uint64_t grants() const { return grants_; }
  std::uint64_t guaranteed_grants() const { return guaranteed_grants_; }
  std::uint64_t parts() const { return parts_; }
  std::uint64_t reclaims() const { return reclaims_; }
  std::uint64_t turns() const { return turns_; }
  std::uint64_t merges() const { return merges_; }
  std::uint64_t departures() const { return departures_; }
  std::uint64_t returns() const { return returns_; }

 private:
  struct Waiting {
    PlaceId place = 0;
    Size bytes = 0;
    bool is_guaranteed = false;
    bool in_parts = false;
    Microseconds since = 0;
  };
  struct KnownClient {
    ClientTerms terms;
    std::map<PlaceId, Size> leased;
    std::map<PlaceId, Size> before_pause = {};  // it may return to that, whatever its limit is
    std::map<PlaceId, Size> cache;
    std::map<PlaceId, Size> cold;
    std::map<RequestId, Waiting> waiting;
    std::set<ClientId> joined;
    bool has_turn = false;
    enum class Stay : std::uint8_t { On, Leaving, Off, Returning } stay = Stay::On;
    bool keeps_room = false;  // for contexts that may be back
    bool is_paused = false;
    bool has_held_calls = false;
    Microseconds quiet_since = 0;           // as far as its own reports and requests say
    std::map<PlaceId, Size> contexts = {};  // what has left each device
  };
  struct HelperAtWork {
    ClientId client = 0;
    Microseconds ends_at = 0;
  };
  struct Deferred {
    ReclaimRequested request;
    Microseconds at = 0;
    bool was_deferred = false;
  };

  Size chance(Size below) { return random_() % below; }
  bool one_in(Size count) { return chance(count) == 0; }
  PlaceId any_place() { return static_cast<PlaceId>(chance(places)); }
  std::map<ClientId, KnownClient>::iterator any_client();

  void tell(const NodeEvent& event);
  void do_something();
  void come();
  void change_terms();
  void join();
  void ask();
  void report();
  void give_back();
  void report_pause();
  void end_helpers_that_are_due();
  void end_helper(ClientId id);
  void have_arrived(const std::map<PlaceId, Size>& contexts);
  void see_foreign_use(PlaceId place, Size bytes);
  void lie();
  void answer_what_is_due();
  void answer(const Deferred& owed);
  Size return_part(ClientId client, PlaceId place, Size most);
  void check_granted(ClientId client, PlaceId place, Size bytes);
  void let_time_pass();

  void take_note(const LeaseGranted& granted);
  void take_note(const PartGranted& part);
  void take_note(const LeaseRefused& refused);
  void take_note(const TermsRefused& refused);
  void take_note(const CapacityRefused&) { ADD_FAILURE() << "no capacity was changed"; }
  void take_note(const ReclaimRequested& request);
  void take_note(const ReclaimEnded& ended);
  void take_note(const AnswerStale&) {}
  void take_note(const TurnStarted& started);
  void take_note(const TurnEnded& ended);
  void take_note(const GroupChanged& changed);
  void take_note(const TurnsSuspended&) {}
  void take_note(const LeaveRequested& leaving);
  void take_note(const ReturnRequested& returning);
  void take_note(const ReturnRefused& refused);
  void check_contexts();
  void remove(std::map<ClientId, KnownClient>::iterator client);
  void check();
  std::set<ClientId> group_of(ClientId client) const;
  void check_groups();

  static constexpr PlaceId places = 3;  // the last one is the host
  static constexpr Size capacity = 1000;

  const Manners manners_;
  const PolicyTimes times_;
  NodePolicy policy_;
  std::mt19937_64 random_;
  Microseconds now_ = 1;
  std::map<ClientId, KnownClient> clients_;
  std::map<PlaceId, Size> foreign_;
  std::map<Revision, ReclaimRequested> open_;
  std::vector<Deferred> owed_;
  std::vector<HelperAtWork> helpers_;
  ClientId last_client_ = 0;
  RequestId last_request_ = 0;
  Revision last_revision_ = 0;
  std::uint64_t events_ = 0;
  std::uint64_t grants_ = 0;
  std::uint64_t guaranteed_grants_ = 0;
  std::uint64_t parts_ = 0;
  std::uint64_t reclaims_ = 0;
  std::uint64_t turns_ = 0;
  std::uint64_t merges_ = 0;
  std::uint64_t departures_ = 0;
  std::uint64_t returns_ = 0;
};

}  // namespace cuvmm::test
