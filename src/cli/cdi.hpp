// SPDX-License-Identifier: Apache-2.0
// Specifications of the Container Device Interface: the changes that a container runtime makes to a
// container that asks for a device by name.
#pragma once

#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <vector>

#include "base/size.hpp"

namespace cuvmm::cli {

struct CdiDevice {
  int index = 0;     // the driver's ordinal
  std::string uuid;  // "GPU-…"
  Size memory = 0;
};

struct CdiMount {
  std::string host;
  std::string container;
  bool is_writable = false;
};

// Mounts and variables of every container with a share.
struct CdiSurroundings {
  std::vector<CdiMount> mounts;
  std::vector<std::string> environment;  // "NAME=VALUE"
};

inline constexpr const char* usual_cdi_version = "0.5.0";
bool is_cdi_version(const std::string& text);

// Splits "4G,50%"; these shares name the devices gpu0-4g and gpu0-50pct.
std::vector<std::string> cdi_shares(const std::string& list);
// The problem with the shares, if any: a share that is not a size, is zero, is repeated, or exceeds
// a device's memory.
std::optional<std::string> problem_of_shares(const std::vector<std::string>& shares,
                                             const std::vector<CdiDevice>& devices);

// Precondition: problem_of_shares() found no problem.
nlohmann::ordered_json cdi_specification(const std::string& version,
                                         const std::vector<CdiDevice>& devices,
                                         const std::vector<std::string>& shares,
                                         const CdiSurroundings& surroundings);

}  // namespace cuvmm::cli
