// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "node/time_policy.hpp"

namespace cuvmm::daemon {

// How long a paused client goes without a waiting call before it leaves its devices.
struct DeepPauseRule {
  std::optional<node::Microseconds> after = {};  // none: never
};
// Reads "10m" or "off".
std::optional<DeepPauseRule> read_deep_pause_rule(const std::string& text);

// The entitlement of matching clients at each device. A client matches if all criteria that are set
// match.
struct ClientRule {
  std::string name;
  std::optional<uid_t> user;
  std::string cgroup;  // this cgroup and those below it
  Size guarantee = 0;
  std::optional<Size> limit;
  std::optional<std::uint32_t> weight;
  std::optional<int> priority;
  std::optional<std::uint32_t> cap;  // percent of each device's time
  std::optional<DeepPauseRule> deep_pause;
  unsigned line = 0;  // in the configuration file
};

struct ServiceConfig {
  std::map<std::string, Size> capacity;  // by the device's index or UUID
  std::optional<Size> host;
  std::optional<Size> host_per_user;  // leased by the clients of one user together, except root's
  std::vector<ClientRule> rules;
  node::TimeSettings time;
  DeepPauseRule deep_pause;

  Size guaranteed() const;  // with one client for each rule
};

struct ConfigRead {
  ServiceConfig config;
  std::string problem;  // "FILE:LINE: KEY: …"; empty: none
  bool ok() const { return problem.empty(); }
};

// Whose clients a service serves. Clients choose their own names, so if there are several users, a
// rule with a guarantee or a raised priority must name a user or a cgroup.
enum class Serves : std::uint8_t { OneUser, AllUsers };

// Reads "off", "share", "priority" or "turns".
std::optional<node::TimeRule> read_time_rule(const std::string& text);

ConfigRead read_config(const std::string& path, Serves serves);
ConfigRead parse_config(const std::string& text, const std::string& path, Serves serves);

}  // namespace cuvmm::daemon
