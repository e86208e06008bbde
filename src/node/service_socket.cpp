// SPDX-License-Identifier: Apache-2.0
#include "node/service_socket.hpp"

#include <cstdlib>
#include <string_view>

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
  std::string_view stem = service_socket;
  constexpr std::string_view ending = ".sock";
  if (stem.ends_with(ending)) stem.remove_suffix(ending.size());
  return std::string{stem} + ".http";
}

}  // namespace cuvmm::node
