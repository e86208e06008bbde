// SPDX-License-Identifier: Apache-2.0
// Specifications of the Container Device Interface: what a container runtime adds to a container
// that asks for a device by name.
#pragma once

#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <vector>

#include "base/size.hpp"

namespace cuvmm::cli {

struct CdiDevice {
  int index = 0;     // as the driver counts
  std::string uuid;  // "GPU-…"
  Size memory = 0;
};

struct CdiMount {
  std::string host;
  std::string container;
  bool is_writable = false;
};

// What every container with a share gets.
struct CdiSurroundings {
  std::vector<CdiMount> mounts;
  std::vector<std::string> environment;  // "NAME=VALUE"
};

inline constexpr const char* usual_cdi_version = "0.5.0";
bool is_cdi_version(const std::string& text);

// The parts of "4G,50%", by which gpu0-4g and gpu0-50pct are named.
std::vector<std::string> cdi_shares(const std::string& list);
// What is wrong with them, if anything: one that is no size, is of nothing, or stands twice, or is
// more than a device has.
std::optional<std::string> problem_of_shares(const std::vector<std::string>& shares,
                                             const std::vector<CdiDevice>& devices);

// The shares have no problem.
nlohmann::ordered_json cdi_specification(const std::string& version,
                                         const std::vector<CdiDevice>& devices,
                                         const std::vector<std::string>& shares,
                                         const CdiSurroundings& surroundings);

}  // namespace cuvmm::cli
