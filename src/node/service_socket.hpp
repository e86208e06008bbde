// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace cuvmm::node {

// The sockets of this user's service and of the machine's service, in this order:
// $XDG_RUNTIME_DIR/cuvmm/cuvmmd.sock, /run/cuvmm/cuvmmd.sock.
std::vector<std::string> usual_service_sockets();
// The socket on which the service at `service_socket` serves HTTP: cuvmmd.http beside cuvmmd.sock.
// Other endings than .sock stay, so that services at node.a and node.b do not share one.
std::string web_socket_beside(const std::string& service_socket);

}  // namespace cuvmm::node
