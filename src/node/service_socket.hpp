// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace cuvmm::node {

// Where the service of this user and that of the machine listen, in this order:
// $XDG_RUNTIME_DIR/cuvmm/cuvmmd.sock, /run/cuvmm/cuvmmd.sock.
std::vector<std::string> usual_service_sockets();
// Where a service that listens there serves HTTP: cuvmmd.http beside cuvmmd.sock.
std::string web_socket_beside(const std::string& service_socket);

}  // namespace cuvmm::node
