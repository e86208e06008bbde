// SPDX-License-Identifier: Apache-2.0
// Names the container that a process runs in.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace cuvmm::node {

struct Container {
  std::string id;   // 64 hexadecimal digits
  std::string pod;  // UID of its Kubernetes pod, with dashes; empty if it is in none

  // Whether the container's ID or its pod's UID begins with the text.
  bool is_named(std::string_view beginning) const;

  friend bool operator==(const Container&, const Container&) = default;
};

// By the text of /proc/PID/cgroup as the host sees it, for the runtimes that name a cgroup after
// the container's ID: Docker, Podman, containerd and CRI-O. Of nested containers, the innermost.
std::optional<Container> container_of_cgroups(std::string_view text);

}  // namespace cuvmm::node
