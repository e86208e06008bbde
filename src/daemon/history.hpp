// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <deque>
#include <functional>
#include <map>
#include <string>

#include "node/decision.hpp"
#include "node/event.hpp"
#include "observe/snapshot.hpp"

namespace cuvmm::daemon {

// The policy's history for observers: a tally for each client, and the latest events with their
// causes.
class NodeHistory {
 public:
  struct Names {
    std::function<std::string(node::ClientId)> name;
    std::function<uid_t(node::ClientId)> user;
    std::function<std::string(node::PlaceId)> place;
  };
  explicit NodeHistory(Names names) : names_(std::move(names)) {}

  // Records one event and the policy's decisions on it.
  void note(const node::NodeEvent& event, const node::Decisions& decisions, node::Microseconds now);

  // Records the end of a client's departure from its devices, or of its return to them. `why` is
  // empty if it succeeded.
  void note_deep_pause(node::ClientId client, bool is_departure, bool is_done, Size bytes,
                       node::Microseconds took, const std::string& why, node::Microseconds now);

  // The client's unique name, which it keeps as long as it is connected.
  std::string label_of(node::ClientId client) const;
  observe::ClientTally tally_of(node::ClientId client, node::Microseconds now) const;
  // How long the oldest request has waited.
  node::Microseconds waits(node::ClientId client, node::PlaceId place,
                           node::Microseconds now) const;
  std::vector<observe::NodeEventSample> events(node::Microseconds now) const;

 private:
  struct Known {
    std::string label;
    uid_t user = 0;
    observe::ClientTally tally = {};
    node::Microseconds turn_since = 0;  // 0: it has no turn
  };
  struct Waiting {
    node::PlaceId place = 0;
    Size bytes = 0;
    node::Microseconds since = 0;
  };
  struct Happened {
    node::ClientId client = 0;
    observe::NodeEventSample sample;
    node::Microseconds at = 0;
  };
  // A reclaim request that has not ended, or that the client may still answer late.
  struct Reclaim {
    std::uint64_t event = 0;  // its number
    std::string place;
    node::ReclaimStep step = {};
    node::Microseconds began = 0;
    bool is_overdue = false;
  };
  using Reclaims = std::map<std::pair<node::ClientId, node::Revision>, Reclaim>;

  void before(const node::ClientCame& event, node::Microseconds now);
  void before(const node::LeaseRequested& event, node::Microseconds now);
  void before(const node::RequestCancelled& event, node::Microseconds now);
  void before(const node::LeaseReturned& event, node::Microseconds now);
  void before(const node::ReclaimAnswered& event, node::Microseconds now);
  template <class Other>
  void before(const Other&, node::Microseconds) {}

  void after(const node::LeaseGranted& decision, node::Microseconds now);
  void after(const node::LeaseRefused& decision, node::Microseconds now);
  void after(const node::ReclaimRequested& decision, node::Microseconds now);
  void after(const node::ReclaimEnded& decision, node::Microseconds now);
  void after(const node::TurnStarted& decision, node::Microseconds now);
  void after(const node::TurnEnded& decision, node::Microseconds now);
  void after(const node::TurnsSuspended& decision, node::Microseconds now);
  template <class Other>
  void after(const Other&, node::Microseconds) {}

  void note_refused(node::ClientId client);
  Known* find(node::ClientId client);
  // Returns nullptr if the event is too old to be shown.
  observe::NodeEventSample* find_shown(std::uint64_t event);
  void add_returned(const Reclaim& reclaim, Known& by, Size bytes);
  void note_wait(node::ClientId client, node::RequestId request, node::Microseconds now);
  bool note_again(node::ClientId client, const observe::NodeEventSample& refused,
                  node::Microseconds now);
  observe::NodeEventSample& add(observe::NodeEventKind kind, node::ClientId client,
                                node::Microseconds now);

  const Names names_;
  std::map<node::ClientId, Known> clients_;
  std::map<std::pair<node::ClientId, node::RequestId>, Waiting> waiting_;
  Reclaims reclaims_;
  std::deque<Happened> events_;
  std::uint64_t last_number_ = 0;
};

}  // namespace cuvmm::daemon
