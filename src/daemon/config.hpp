// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "node/time_policy.hpp"

namespace cuvmm::daemon {

// What clients that fit are entitled to, at each device. All that is named has to fit.
struct ClientRule {
  std::string name;
  std::optional<uid_t> user;
  std::string cgroup;  // it, and those below it
  Size guarantee = 0;
  std::optional<Size> limit;
  std::optional<std::uint32_t> weight;
  std::optional<int> priority;
  std::optional<std::uint32_t> cap;  // percent of each device's time
  unsigned line = 0;                 // in the file
};

struct ServiceConfig {
  std::map<std::string, Size> capacity;  // by number or UUID of the device
  std::optional<Size> host;
  std::vector<ClientRule> rules;
  node::TimeSettings time;

  Size guaranteed() const;  // to one client of each rule
};

struct ConfigRead {
  ServiceConfig config;
  std::string problem;  // "FILE:LINE: KEY: …"; empty: none
  bool ok() const { return problem.empty(); }
};

// Whose clients a service serves. A name is what a client says of itself, so for several users a
// rule that gives something away has to name the user or the cgroup.
enum class Serves : std::uint8_t { OneUser, AllUsers };

// "share", …
std::optional<node::TimeRule> read_time_rule(const std::string& text);

ConfigRead read_config(const std::string& path, Serves serves);
ConfigRead parse_config(const std::string& text, const std::string& path, Serves serves);

}  // namespace cuvmm::daemon
