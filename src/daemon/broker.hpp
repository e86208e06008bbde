// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "daemon/config.hpp"
#include "daemon/deep_pauses.hpp"
#include "daemon/history.hpp"
#include "daemon/peer.hpp"
#include "daemon/share_keys.hpp"
#include "daemon/time_keeper.hpp"
#include "node/group_pauses.hpp"
#include "node/observer_message.hpp"
#include "node/policy.hpp"
#include "observe/devices.hpp"

namespace cuvmm::daemon {

using ConnectionId = std::uint64_t;

// The service's machine, and the users it serves.
struct BrokerSettings {
  Serves serves = Serves::OneUser;
  uid_t user = 0;  // the service's own user
  std::vector<observe::NodeDevice> devices;
  node::PolicyTimes times;
};

// Translates between clients' messages and the policies' events and decisions: identifies clients,
// applies their terms, and maps UUIDs to places. It has no socket: packets leave through `send`.
class Broker {
 public:
  using Packet = std::vector<std::byte>;
  // An answer of several packets is sent whole, however many they are.
  using Send = std::function<void(ConnectionId, std::vector<Packet>)>;
  using End = std::function<void(ConnectionId)>;  // closes it after the packets sent so far
  // Also sends a file descriptor, which the caller keeps.
  using SendWith = std::function<void(ConnectionId, Packet, int descriptor)>;

  Broker(BrokerSettings settings, Send send, End end, SendWith send_with = {})
      : settings_(std::move(settings)),
        send_(std::move(send)),
        end_(std::move(end)),
        send_with_(std::move(send_with)),
        policy_(settings_.times),
        time_(settings_.devices,
              [this](node::ClientId to, std::uint32_t slot, int descriptor) {
                send_with_(to, node::encode(node::ForegroundBoard{slot}), descriptor);
              }),
        history_({[this](node::ClientId client) { return name_of(client); },
                  [this](node::ClientId client) { return parties_[client].peer.user; },
                  [this](node::PlaceId place) { return place_name(place); }}) {}

  // Sets the runner of the helpers, which must outlive its use here. Without it, no client leaves
  // its devices.
  void leave_devices_with(DeepPauses& deep_pauses) { deep_pauses_ = &deep_pauses; }
  // For DeepPauses::Links.
  void demand_presence(node::ClientId client, const node::PresenceDemand& demand) const {
    say(client, demand);
  }
  void deep_pause_ended(node::ClientId client, DeepPauseWay way, const HelperReport& report,
                        node::Microseconds now);

  // Returns a problem if the guarantees do not fit or a device does not exist; the previous
  // configuration then stays. Connected clients get their new terms.
  std::optional<std::string> configure(const ServiceConfig& config, node::Microseconds now);

  void connected(ConnectionId id, Peer peer, node::Microseconds now);
  // Returns false if the sender must be disconnected.
  bool said(ConnectionId id, std::span<const std::byte> packet, node::Microseconds now);
  void gone(ConnectionId id, node::Microseconds now);

  // Call before asking NVML: its answer may include memory that clients return meanwhile.
  void will_see_use();
  // Takes NVML's figures for a device. Memory in use beyond the clients' leases counts as foreign.
  void saw_use(std::uint32_t device, const observe::DeviceUse& use, node::Microseconds now);
  void time_passed(node::Microseconds now);
  std::optional<node::Microseconds> next_wake() const;

  std::size_t client_count() const { return policy_.books().clients().size(); }
  const node::NodePolicy& policy() const { return policy_; }
  // The whole state, for metrics and the live view.
  observe::Snapshot snapshot(node::Microseconds now) const;

 private:
  static constexpr node::PlaceId host_place = 0;  // devices follow, by their index

  struct Wishes {
    std::string name;
    std::string group;
    std::uint32_t weight = 1;
    int priority = 0;
    std::map<node::PlaceId, node::HeldAlready> places;
  };
  struct HandSet {  // by `cuvmm set`
    std::optional<node::TermsAsk> terms = {};
    std::optional<std::uint32_t> cap = {};
  };
  struct Party {  // a connection
    Peer peer;
    std::optional<Wishes> wishes;  // once it has greeted
    std::size_t places_to_come = 0;
    // Where the guarantee that it is entitled to did not fit, so that it has none.
    std::set<node::PlaceId> without_guarantee = {};
    bool is_client = false;  // accepted
    HandSet by_hand = {};
    std::optional<std::uint32_t> cap_wish = {};       // of a client that shares device time
    std::optional<node::RequestId> takes_parts = {};  // the latest request that accepts parts
    bool pauses_with_group = false;
    bool waits_for_nobody = false;  // whatever it shares (--group none)
  };
  struct Move {
    node::MoveState state;
    node::ClientId client = 0;
    node::Revision revision = 0;
    node::Microseconds began = 0;
    bool is_open = true;
  };

  struct Remembered {
    std::uint64_t start_ticks = 0;
    HandSet by_hand;
  };
  struct LeasedBefore {
    pid_t process = 0;
    std::map<node::PlaceId, Size> leased;
  };

  // Messages of clients.
  bool on(ConnectionId id, Party& party, const node::Greeting& said, node::Microseconds now);
  bool on(ConnectionId id, Party& party, const node::HeldAlready& said, node::Microseconds now);
  bool on(ConnectionId id, Party& party, const node::LeaseAsk& said, node::Microseconds now);
  bool on(ConnectionId id, Party& party, const node::LeaseCancel& said, node::Microseconds now);
  bool on(ConnectionId id, Party& party, const node::TakesParts& said, node::Microseconds now);
  bool on(ConnectionId id, Party& party, const node::LeaseReturn& said, node::Microseconds now);
  bool on(ConnectionId id, Party& party, const node::UseReport& said, node::Microseconds now);
  bool on(ConnectionId id, Party& party, const node::ReclaimAnswer& said, node::Microseconds now);
  bool on(ConnectionId id, Party& party, const node::OutlastedTurn& said, node::Microseconds now);
  bool on(ConnectionId id, Party& party, const node::TimeWish& said, node::Microseconds now);
  bool on(ConnectionId id, Party& party, const node::TimeNews& said, node::Microseconds now);
  bool on(ConnectionId id, Party& party, const node::PausesWithGroup& said, node::Microseconds now);
  bool on(ConnectionId id, Party& party, const node::YieldsToForeground& said,
          node::Microseconds now);
  bool on(ConnectionId id, Party& party, const node::StandsStill& said, node::Microseconds now);
  bool on(ConnectionId id, Party& party, const node::SharesHandles& said, node::Microseconds now);
  bool on(ConnectionId id, Party& party, const node::PresenceReport& said, node::Microseconds now);
  bool on(ConnectionId id, Party& party, const node::PresenceAnswer& said, node::Microseconds now);
  template <class FromTheService>
  bool on(ConnectionId, Party&, const FromTheService&, node::Microseconds) {
    return false;
  }
  bool accept(ConnectionId id, Party& party, node::Microseconds now);
  // Tells the policy the client's terms. Where its guarantee does not fit, it gets none.
  void renew_terms(ConnectionId id, Party& party, node::Microseconds now);
  void renew_all_terms(node::Microseconds now);
  // Returns the clients whose new terms were refused.
  using TermsOfClients = std::map<ConnectionId, node::ClientTerms>;
  TermsOfClients change_together(TermsOfClients changes, node::Microseconds now);
  // Returns false if the client had no guarantee there already.
  bool drop_guarantee(ConnectionId id, Party& party, const node::TermsRefused& refused);

  // Messages of observers.
  bool observe(ConnectionId id, const Party& party, const node::ObserverMessage& said,
               node::Microseconds now);
  void show_state(ConnectionId id, node::Microseconds now) const;
  // Returns nullptr if `by` may change terms.
  const char* why_may_not_change(const Party& by, std::uint16_t version) const;
  static std::string contradiction_in(const node::ClientTerms& before, const node::ClientTerms& now,
                                      const node::TermsAsk& asked);
  std::string excess_with(const TermsOfClients& changes) const;
  void remember_hand_set(const Party& party);
  void recall_hand_set(Party& party) const;
  node::ObserverAnswer change_terms(const Party& by, const node::TermsAsk& asked,
                                    node::Microseconds now);
  node::ObserverAnswer change_cap(const Party& by, const node::TimeTermsAsk& asked,
                                  node::Microseconds now);

  // Device time (broker_time.cpp).
  node::TimeTerms time_terms(ConnectionId id, const Party& party) const;
  void renew_time_terms(node::Microseconds now);
  std::optional<node::TimeState> time_of(node::ClientId client) const;

  // The client's entitlement: its wishes, as far as the rules and its user allow them.
  node::ClientTerms entitle(const Party& party) const;
  // The first rule that matches; nullptr if there is none.
  const ClientRule* rule_of(const Party& party) const;

  node::Decisions tell(const node::NodeEvent& event, node::Microseconds now);
  void carry_out_all(const node::Decisions& decisions, node::Microseconds now);
  void carry_out(const node::Decision& decision, node::Microseconds now);
  void regroup_time(const node::Decisions& decisions, node::Microseconds now);
  void pause_groups_together(const node::Decisions& decisions);
  void begin_deep_pause(node::ClientId client, DeepPauseWay way);
  void log_refusal(const node::ReturnRefused& refused) const;
  // The clients that hold memory of the place, or are guaranteed some.
  std::vector<node::ClientId> claimants(node::PlaceId place, node::ClientId without) const;
  std::map<node::PlaceId, Size> contexts_at(const node::ContextSizes& sizes) const;
  std::optional<node::PauseState> pause_of(node::ClientId client) const;
  void note_move(const node::ReclaimRequested& asked, node::Microseconds now);
  void end_move(const node::ReclaimEnded& ended, node::Microseconds now);
  void say(ConnectionId to, const node::NodeMessage& message) const {
    send_(to, {node::encode(message)});
  }
  void say_terms(ConnectionId to, node::PlaceId place) const;

  std::optional<node::PlaceId> place_of(const node::PlaceUuid& uuid) const;
  node::PlaceUuid uuid_of(node::PlaceId place) const;
  std::string name_of(node::ClientId client) const;
  std::string group_name_of(node::ClientId client) const;
  std::string place_name(node::PlaceId place) const;
  std::string awaited_by(node::ClientId client, node::PlaceId place) const;

  const BrokerSettings settings_;
  const Send send_;
  const End end_;
  const SendWith send_with_;
  ServiceConfig config_;
  node::NodePolicy policy_;
  TimeKeeper time_;
  node::GroupPauses group_pauses_{
      [this](node::ClientId to, const node::NextGroupStep& step) { say(to, step); }};
  ShareKeys share_keys_;
  DeepPauses* deep_pauses_ = nullptr;
  std::map<ConnectionId, Party> parties_;  // a client's ID is its connection's ID
  // By process and name, since a client that reconnects keeps these terms.
  std::map<std::pair<pid_t, std::string>, Remembered> hand_set_;
  std::map<ConnectionId, LeasedBefore> leased_before_;  // leases when NVML was last asked
  std::deque<Move> moves_;
  std::optional<node::Microseconds> began_;
  NodeHistory history_;
};

}  // namespace cuvmm::daemon
