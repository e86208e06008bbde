// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "node/books.hpp"
#include "node/decision.hpp"
#include "node/event.hpp"
#include "node/reclaim.hpp"
#include "node/turns.hpp"

namespace cuvmm::node {

// Decides who may hold how much memory of a machine, and when. A deterministic state machine:
// events in, decisions out. It has no clock, thread or socket, and never touches memory.
class NodePolicy {
 public:
  explicit NodePolicy(const PolicyTimes& times = {}) : times_(times), turns_(times) {}

  // `now` must never decrease.
  Decisions handle(const NodeEvent& event, Microseconds now);
  // Ends the turns at a place, and starts none there before `until`.
  Decisions withhold_turns(PlaceId place, Microseconds until, Microseconds now);
  // The latest time at which the caller must send TimePassed.
  std::optional<Microseconds> next_wake() const;

  const NodeBooks& books() const { return books_; }
  const OpenReclaims& open_reclaims() const { return reclaims_; }
  const TurnTable& turns() const { return turns_; }
  // Without those that the policy makes itself.
  std::size_t waiting_requests() const {
    return static_cast<std::size_t>(std::count_if(
        asks_.begin(), asks_.end(), [](const Ask& ask) { return !ask.is_for_contexts; }));
  }
  // Bytes that a client's waiting requests ask for at a place, and its contexts if it returns.
  Size waited_for(ClientId client, PlaceId place) const;

  static constexpr std::size_t most_waiting_of_a_client = 16;

 private:
  struct Ask {
    LeaseRequested asked;
    Microseconds began = 0;  // when it got its present right
    Microseconds deadline = 0;
    bool waits_for_turn = false;
    Microseconds no_turn_before = 0;
    bool gathers = false;  // memory is being reclaimed for it
    // Made by the policy itself, for the contexts of a client that returns to its devices. No limit
    // applies, and no decision answers it.
    bool is_for_contexts = false;
  };
  // The memory being reclaimed at a place for the requests examined so far.
  struct Gathering {
    Size wanted = 0;
    bool is_reserved_for_others = false;  // later requests may not take free memory
    bool is_for_plain = false;
  };

  // One event each.
  void on(const PlaceConfigured& event);
  void on(const ForeignUseSeen& event);
  void on(const ClientCame& event);
  void on(const TermsChanged& event);
  void on(const ClientLeft& event);
  void on(const ClientsJoined& event);
  void on(const LeaseRequested& event);
  void on(const RequestCancelled& event);
  void on(const LeaseReturned& event);
  void on(const UseReported& event);
  void on(const ReclaimAnswered& event);
  void on(const WorkOutlastedTurn& event);
  void on(const PresenceReported& event);
  void on(const LeaveEnded& event);
  void on(const ReturnEnded& event);
  void on(const TimePassed&) {}

  void clear_stalled(const NodeEvent& event);
  bool can_change_anything(const NodeEvent& event) const;
  bool terms_can_be_held(ClientId client, const ClientTerms& terms);
  Size most_credible(ClientId client, PlaceId place) const;
  void remove_client(ClientId client);
  void regroup();

  // The consequences of an event.
  void end_overdue();
  void settle();
  bool settle_place(PlaceId place);
  bool end_turns();
  bool extend_turns();
  bool start_turns();
  void note_who_waits_in_its_turn();

  // How a request is settled.
  std::vector<std::size_t> order_of_asks(PlaceId place) const;
  Right right_of(const Ask& ask) const;
  Microseconds deadline_of(const Ask& ask) const;
  Size free_of_guarantees(PlaceId place, ClientId asker) const;
  std::optional<RefusalReason> impossible(const Ask& ask) const;
  bool may_have_been_freed(const Ask& ask) const;
  bool settle_ask(std::size_t ask, Gathering& gathering);
  bool grant(std::size_t ask);  // these two always return true: the request has ended
  bool refuse(std::size_t ask, RefusalReason why);
  // Returns whether there was a part to grant.
  bool grant_part(Ask& ask);
  void refuse_now(const LeaseRequested& asked, RefusalReason why);
  bool lenders_are_asked(PlaceId place) const;
  void wait_for_turn(Ask& ask);
  bool gather_for(Ask& ask, Right right, Gathering& gathering);
  // Returns whether it asked any client.
  bool ask_for(const Shortage& shortage, Microseconds latest);

  Microseconds reclaim_time(ReclaimStep step, Size bytes) const;
  Microseconds longest_in_flight(const std::string& group) const;
  void ask_back(const PlannedReclaim& planned, Microseconds latest, std::optional<ClientId> asker);
  void defer(const OpenReclaim& deferred);
  void note_late_pause(const ReclaimAnswered& late, Size returned);
  void end_reclaim(Revision revision, ReclaimEnd how);
  void reclaim_beyond_limits(PlaceId place);
  void reclaim_overcommitted(PlaceId place);

  // Clients that leave their devices, and return (policy_deep_pause.cpp).
  void note_who_is_quiet();
  std::optional<Microseconds> leaves_at(const NodeClient& client) const;
  std::optional<Microseconds> returns_at(ClientId id, const NodeClient& client) const;
  void let_leave();
  void gather_for_returns();
  void let_return();
  void give_up_return(ClientId id);
  void refuse_return(const LeaseRequested& asked);
  void rest(DeepPauseFacts& deep) const;
  void follow_last_report(ClientId id);
  bool has_asks(ClientId id) const;
  bool is_returning(const std::string& group) const;
  void send_helper(ClientId id, DeviceStay how);
  bool is_acted_on(const NodeClient& client, DeviceStay how) const;
  std::size_t count_acted_on(DeviceStay how) const;
  std::optional<Microseconds> next_move_of_contexts() const;

  bool turns_are_withheld(const std::string& group) const;
  Microseconds no_turns_before(const std::string& group) const;
  Microseconds earliest_turn_for(const Ask& ask) const;
  const std::string& group_of(const Ask& ask) const;
  bool is_idle(const std::string& group) const;
  // Whether the client has been asked to pause, or was paused and has not got its memory back.
  bool is_away(ClientId client) const;
  bool comes_back_in_turn(const Ask& ask) const;
  std::vector<TurnWish> wishes() const;
  std::set<PlaceId> places_of(const std::string& group) const;
  std::uint32_t weight_of(const std::string& group) const;
  RelativeWeight relative_weight_of(const std::string& group,
                                    const std::set<PlaceId>& places) const;
  void end_turn(const std::string& group);
  void end_turns_at(const std::set<PlaceId>& places);

  const PolicyTimes times_;
  NodeBooks books_;
  OpenReclaims reclaims_;
  TurnTable turns_;
  std::vector<Ask> asks_;  // in order of arrival
  Microseconds now_ = 0;
  Decisions decisions_;
};

}  // namespace cuvmm::node
