// SPDX-License-Identifier: Apache-2.0
#include "node/service_socket.hpp"

#include <cstdlib>

namespace cuvmm::node {

std::vector<std::string> usual_service_sockets() {
  std::vector<std::string> all;
  const char* const of_the_user = std::getenv("XDG_RUNTIME_DIR");
  if (of_the_user != nullptr && *of_the_user == '/') {
    all.push_back(std::string{of_the_user} + "/cuvmm/cuvmmd.sock");
  }
  all.emplace_back("/run/cuvmm/cuvmmd.sock");
  return all;
}

std::string web_socket_beside(const std::string& service_socket) {
  const std::size_t dot = service_socket.rfind('.');
  const std::size_t slash = service_socket.rfind('/');
  const bool has_ending = dot != std::string::npos && (slash == std::string::npos || dot > slash);
  return service_socket.substr(0, has_ending ? dot : std::string::npos) + ".http";
}

}  // namespace cuvmm::node
