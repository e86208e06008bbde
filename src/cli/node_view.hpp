// SPDX-License-Identifier: Apache-2.0
// The command line's queries to the node service.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/result.hpp"
#include "node/observer_message.hpp"

namespace cuvmm::cli {

// The service's whole state at one moment.
struct NodeView {
  std::vector<node::PlaceState> places;
  std::vector<node::ClientState> clients;
  std::vector<node::HoldingState> holdings;
  std::vector<node::MoveState> moves;
  std::vector<node::TimeState> times;    // of the clients that share device time
  std::vector<node::PauseState> pauses;  // of the clients that can leave their devices

  const node::TimeState* time_of(node::ClientId client) const;
  const node::PauseState* pause_of(node::ClientId client) const;
};

// NotFound if no service listens at VMM_NODE_SOCKET or the usual sockets.
Result<NodeView> look_at_node();
// Sends a TermsAsk or a TimeTermsAsk.
Result<node::ObserverAnswer> ask_for_terms(const node::ObserverMessage& asked);

// Leaves out less important columns of the clients where lines would be wider than `width`.
std::vector<std::string> lines_of(const NodeView& view, std::size_t width);
nlohmann::json as_json(const NodeView& view);

}  // namespace cuvmm::cli
