// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/fork_closed.hpp"
#include "base/lock.hpp"
#include "base/option_types.hpp"
#include "lease/grants.hpp"
#include "lease/tenant.hpp"
#include "node/message.hpp"
#include "vmm/access_set.hpp"

namespace cuvmm::lease {

struct LeaseSettings {
  std::vector<std::string> sockets;  // the first that accepts this process is used
  bool is_required = false;          // without the service, no memory is granted
  std::string name;
  std::string group;
  SizeLimit guarantee = SizeLimit::none();
  std::uint32_t weight = 1;
  int priority = 0;
  std::uint32_t cap = 100;              // percent of each device's time
  SizeLimit cache = SizeLimit::none();  // unused leases beyond it are returned at once
  Duration patience{250'000};           // how long to wait for what the service answers at once
};

// Returns those of `sockets` that belong to root or this user.
std::vector<std::string> sockets_that_may_be_trusted(const std::vector<std::string>& sockets);

// This process as a client of the node service. Two threads start with the first device: one
// keeps the connection and records the service's messages, the other carries out its requests.
// While the service does not answer, only the driver limits memory, unless the service is required.
// On reconnection, the process reports what it holds.
class Leases final : public Lessor {
 public:
  // Calls `sharer` once when device time is shared too. nullptr: do not share time.
  Leases(LeaseSettings settings, Tenant& tenant, TimeSharer* sharer = nullptr)
      : settings_(std::move(settings)), tenant_(tenant), sharer_(sharer) {}

  void begin(LeasedBudget& budget, const Uuid& device, Size memory) override;
  Extended extend(LeasedBudget& budget, Size size) override;
  bool wait_for(LeasedBudget& budget, Size size, std::uint64_t until, std::uint64_t longest,
                const StillWanted& is_wanted) override;

  bool is_connected() const;
  // Tells the service that this process has changed its part of the board.
  void say_time_news();
  // This process has exported or opened the memory or event with this key, so every process that
  // names the same key belongs to its group. Without a service, the key is kept until there is one.
  void shares(const node::ShareKey& key);

 private:
  enum class Standing : std::uint8_t { Apart, Greeted, Connected };
  struct Leased {
    LeasedBudget* budget = nullptr;
    node::PlaceUuid uuid{};
    Size memory = 0;
    bool has_terms = false;
    Size resumes_with = 0;                // of a paused program: bytes held before; 0: not paused
    node::RequestId comes_back_with = 0;  // the request for those bytes; 0: none
    node::UseReport reported = {};
    std::uint64_t reported_at = 0;
    std::uint64_t surplus_since = 0;
    std::uint64_t unbacked_since = 0;  // the driver refuses what the surplus allows; 0: it does not
    std::uint64_t foreign_since = 0;   // foreign memory is in the way; 0: it is not
    // It gave less than it had reported, or did not pause. Until then it reports only its surplus.
    std::uint64_t short_until = 0;
    Size held_before = 0;           // bytes held when the last pause began
    std::uint64_t unleased_at = 0;  // it may have taken memory without a lease; 0: it has not

    bool is_host() const { return uuid == Lessor::the_host; }
    Size missing() const;  // bytes still to be leased before the resume
  };
  struct Pending {
    node::RequestId request = 0;
    Leased* place = nullptr;
    Size bytes = 0;
    std::uint64_t asked_at = 0;
    enum class State : std::uint8_t { Waits, Granted, Refused, Lost } state = State::Waits;
    node::RefusalReason why = node::RefusalReason::UnknownPlace;
    Size free = 0;
    Size foreign = 0;
    bool has_parts = false;  // some of it has been granted
  };

  // The connection's thread.
  static void* keep_connected(void* leases);
  void connect_and_listen();
  Result<Fd> connect() const;
  void note_unavailable(const Error& why);
  void wait_for_admission(Holding& holding);
  void greet(Fd socket);
  void listen();
  void lose();
  // take_note() returns false if the connection must end.
  void take_board(const Fd& file, std::span<const std::byte> packet);
  bool take_note(const node::Accepted& said);
  bool take_note(const node::Rejected& said);
  bool take_note(const node::PlaceTerms& said);
  bool take_note(const node::LeaseGrant& said);
  bool take_note(const node::LeasePart& said);
  void note_new_room();
  bool take_note(const node::LeaseRefusal& said);
  bool take_note(const node::ReclaimDemand& said);
  bool take_note(const node::PauseWithGroup& said);
  bool take_note(const node::NextGroupStep& said);
  bool take_note(const node::WorkDeadline& said);
  bool take_note(const node::PresenceDemand& said);

  // The second thread.
  static void* serve_demands(void* leases);
  void serve_once();
  void reclaim(const node::ReclaimDemand& demand);
  void pause_for_all_devices(const node::ReclaimDemand& first);
  LeasedBudget* budget_of(const node::ReclaimDemand& demand);
  // Returns the bytes given back with the answer.
  Size answer(const node::ReclaimDemand& demand, node::ReclaimOutcome outcome, Size most);
  void give_again_later(const node::ReclaimDemand& demand);
  bool pause_for(const node::ReclaimDemand& demand);
  void return_what_is_released();
  bool is_over(const node::ReclaimDemand& demand) const;
  void note_what_is_held();
  void note_what_is_away();
  bool pauses_with_group(const node::ReclaimDemand& demand);
  std::optional<Duration> work_deadline(const node::ReclaimDemand& demand);
  // Discards the service's instructions for that pause.
  void forget_how_to_pause(const node::ReclaimDemand& demand);
  class GroupOfService;
  Result<void> pause_with_group(Duration within, const node::ReclaimDemand& demand,
                                const std::function<void()>& has_released);
  void bring_back(std::uint64_t now);
  void back_off(std::uint64_t now);
  enum class Room : std::uint8_t { All, Some, None, Refused };
  Room room_to_come_back();
  void end_return();
  void leave_again();
  void agree(const node::PresenceDemand& demand);
  void report_presence();
  static void say_who_can_bring_back();
  void report(std::uint64_t now);
  void return_surplus(std::uint64_t now);
  void report_what_is_unleased(std::uint64_t now);

  bool start_threads();
  void say_shares();
  void send_packet(const std::vector<std::byte>& packet);
  template <class Kind>
  void send(const Kind& message);
  node::HeldAlready use_of(const Leased& place, Size held) const;
  enum class Ask : std::uint8_t { AtOnce, Whole, InParts };
  node::RequestId ask(Leased& place, Size bytes, Ask how);
  static bool is_still_wanted(Holding& holding, const StillWanted& is_wanted);
  void hear_until(Holding& holding, std::uint64_t until);
  std::optional<Pending> answer_to(Holding& holding, node::RequestId request, std::uint64_t until,
                                   const StillWanted& is_wanted = &always_wanted);
  Extended extend_at_once(Holding& holding, Leased& place, Size size);
  bool wait_until_leased(LeasedBudget& budget, Size size, std::uint64_t until,
                         std::uint64_t longest, const StillWanted& is_wanted);
  std::uint64_t repeats_until(const Pending& refused, std::uint64_t until,
                              std::uint64_t longest) const;
  bool outwait_a_lag(Holding& holding, Leased& place);
  void return_what_is_not_backed(Holding& holding, Leased& place, std::uint64_t longest);
  std::span<Leased> places() { return std::span{places_}.first(place_count_); }
  Pending* find(node::RequestId request);
  Leased* find(const LeasedBudget& budget);
  Leased* find(const node::PlaceUuid& uuid);
  Extended without_service() const {
    return settings_.is_required ? Extended::No : Extended::NobodyLeases;
  }
  Extended without_answer(Leased& place) const;
  bool answers() const { return standing_ == Standing::Connected && !is_silent_; }
  void note_silence();
  void note_answer();
  // Waits for a service that has not been away for long to answer again, at most until `longest`.
  // Returns false without waiting if that time is over already.
  bool outwait_absence(Holding& holding, std::uint64_t longest);
  static Size batch_of(const Leased& place);
  static void log_refusal(const Pending& refused);

  const LeaseSettings settings_;
  Tenant& tenant_;
  TimeSharer* const sharer_;
  // For the connection's thread only.
  Grants grants_;
  bool shares_time_ = false;

  // For the second thread only.
  std::uint64_t paused_at_ = 0;   // 0: not paused at the service's request
  std::uint64_t retry_wait_ = 0;  // after the last attempt to bring it back, which failed
  std::uint64_t retries_at_ = 0;
  bool is_partly_back_ = false;  // some memory has come back ahead of the resume
  bool tenant_is_idle_ = false;
  std::uint64_t looked_at_ = 0;

  mutable Lock lock_{LockOrder::Leases};  // guards all members below
  Condition heard_;                       // signalled when the service has sent something
  Condition work_;                        // signalled when the second thread has work
  bool has_new_room_ = false;             // a lease has grown since that thread last looked
  Standing standing_ = Standing::Apart;
  bool has_started_ = false;
  bool is_unavailable_ = false;     // it could not be reached, or did not admit this process
  bool is_silent_ = false;          // the service did not answer in time
  bool reconnects_ = false;         // to report what it holds
  std::uint64_t away_since_ = 0;    // it was lost, or fell silent; 0: it answers, or never did
  bool asks_no_guarantee_ = false;  // since the service could not honour it
  ForkClosedFd socket_;
  std::array<Leased, AccessSet::most_devices + 1> places_;  // and the host
  std::size_t place_count_ = 0;                             // only grows
  std::vector<Pending> pending_;
  std::vector<Pending> abandoned_;  // no thread waits for the answer any more
  std::vector<node::ReclaimDemand> demands_;
  std::vector<node::PresenceDemand> presence_demands_;
  std::optional<node::PresenceReport> presence_told_;  // the last one sent to the present service
  std::vector<node::Revision> with_group_;             // pauses to be made together with the group
  std::optional<node::NextGroupStep> group_step_;      // the last one received
  std::uint32_t group_steps_heard_ = 0;                // on this connection
  std::vector<node::WorkDeadline> work_deadlines_;     // of pauses that have not begun
  node::RequestId last_request_ = 0;
  std::vector<node::ShareKey> shares_;  // the newest keys, the oldest of them first
  std::size_t unsaid_shares_ = 0;       // how many of them are still to be sent
  std::uint64_t shares_said_at_ = 0;
};

}  // namespace cuvmm::lease
