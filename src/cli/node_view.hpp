// SPDX-License-Identifier: Apache-2.0
// The node's service, as the command line asks it.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/result.hpp"
#include "node/observer_message.hpp"

namespace cuvmm::cli {

// All that the service shows at one moment.
struct NodeView {
  std::vector<node::PlaceState> places;
  std::vector<node::ClientState> clients;
  std::vector<node::HoldingState> holdings;
  std::vector<node::MoveState> moves;
  std::vector<node::TimeState> times;  // of the clients that share the devices' time

  const node::TimeState* time_of(node::ClientId client) const;
};

// NotFound where no service listens: at VMM_NODE_SOCKET, or at the usual places.
Result<NodeView> look_at_node();
// Of a TermsAsk or a TimeTermsAsk.
Result<node::ObserverAnswer> ask_for_terms(const node::ObserverMessage& asked);

std::vector<std::string> lines_of(const NodeView& view);
nlohmann::json as_json(const NodeView& view);

}  // namespace cuvmm::cli
