// SPDX-License-Identifier: Apache-2.0
#include "node/container.hpp"

#include <algorithm>

#include "node/job_group.hpp"

namespace cuvmm::node {
namespace {

constexpr std::size_t id_length = 64;

bool is_hexadecimal(char letter) {
  return (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'f');
}

// "ID", "docker-ID.scope", "libpod-ID.scope" or "SLICE:cri-containerd:ID". Nothing for the cgroup
// of a container's monitor, such as "crio-conmon-ID.scope".
std::string_view container_in(std::string_view part) {
  constexpr std::string_view scope = ".scope";
  if (part.ends_with(scope)) part.remove_suffix(scope.size());
  if (part.size() < id_length) return {};
  const std::string_view id = part.substr(part.size() - id_length);
  const std::string_view before = part.substr(0, part.size() - id_length);
  const bool is_whole = before.empty() || before.ends_with('-') || before.ends_with(':');
  if (!is_whole || before.find("conmon") != before.npos) return {};
  return std::all_of(id.begin(), id.end(), is_hexadecimal) ? id : std::string_view{};
}

std::string_view container_in_path(std::string_view path) {
  while (!path.empty()) {
    const std::size_t last = path.rfind('/');
    const std::size_t name = last == path.npos ? 0 : last + 1;
    if (const auto id = container_in(path.substr(name)); !id.empty()) return id;
    path = path.substr(0, last == path.npos ? 0 : last);
  }
  return {};
}

std::string pod_of_cgroups(std::string_view text) {
  constexpr std::string_view begins = "pod-";
  const std::string group = group_of_cgroups(text);
  if (!group.starts_with(begins)) return {};
  std::string pod = group.substr(begins.size());
  std::replace(pod.begin(), pod.end(), '_', '-');  // systemd's names of slices have no dashes
  return pod;
}

}  // namespace

bool Container::is_named(std::string_view beginning) const {
  return std::string_view{id}.starts_with(beginning) ||
         std::string_view{pod}.starts_with(beginning);
}

std::optional<Container> container_of_cgroups(std::string_view text) {
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const auto id = container_in_path(line);
    if (!id.empty()) return Container{.id = std::string{id}, .pod = pod_of_cgroups(text)};
  }
  return {};
}

}  // namespace cuvmm::node
