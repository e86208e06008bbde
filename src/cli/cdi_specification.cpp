// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <set>
#include <sstream>

#include "base/option_types.hpp"
#include "base/printable.hpp"
#include "base/text.hpp"
#include "cli/cdi.hpp"

namespace cuvmm::cli {
namespace {

// "4g" or "50pct": only characters that a device's name may contain.
std::string name_of(const std::string& share) {
  std::string name;
  for (const char letter : share)
    name += letter == '%' ? std::string{"pct"} : std::string(1, lower(letter));
  return name;
}

nlohmann::ordered_json mount_of(const CdiMount& mount) {
  const char* const access = mount.is_writable ? "rw" : "ro";
  return {{"hostPath", mount.host},
          {"containerPath", mount.container},
          {"options", {access, "nosuid", "nodev", "bind"}}};
}

}  // namespace

bool is_cdi_version(const std::string& text) {
  constexpr std::array<std::string_view, 7> known{"0.3.0", "0.4.0", "0.5.0", "0.6.0",
                                                  "0.7.0", "0.8.0", "1.0.0"};
  return std::find(known.begin(), known.end(), text) != known.end();
}

std::vector<std::string> cdi_shares(const std::string& list) {
  std::vector<std::string> shares;
  std::istringstream words{list};
  for (std::string share; std::getline(words, share, ',');) shares.push_back(share);
  return shares;
}

std::optional<std::string> problem_of_shares(const std::vector<std::string>& shares,
                                             const std::vector<CdiDevice>& devices) {
  if (shares.empty()) return "--shares names none";
  std::set<std::string> names;
  for (const std::string& share : shares) {
    const auto limit = OptionType<SizeLimit>::read(share);
    if (!limit || limit->of(TiB) == unlimited || limit->of(GiB) == 0) {
      return fmt::format("--shares: '{}' is neither a size (4G) nor a share (50%)",
                         printable(share));
    }
    if (!names.insert(name_of(share)).second) {
      return fmt::format("--shares: {} is listed twice", share);
    }
    for (const CdiDevice& device : devices) {
      if (limit->of(device.memory) <= device.memory) continue;
      return fmt::format("--shares: {} is more than device {} has, {}", share, device.index,
                         print_size(device.memory));
    }
  }
  return {};
}

nlohmann::ordered_json cdi_specification(const std::string& version,
                                         const std::vector<CdiDevice>& devices,
                                         const std::vector<std::string>& shares,
                                         const CdiSurroundings& surroundings) {
  nlohmann::ordered_json described = nlohmann::ordered_json::array();
  for (const CdiDevice& device : devices) {
    for (const std::string& share : shares) {
      const Size limit = OptionType<SizeLimit>::read(share)->of(device.memory);
      // By UUID, which does not depend on the container's other devices.
      described.push_back(
          {{"name", fmt::format("gpu{}-{}", device.index, name_of(share))},
           {"containerEdits",
            {{"env",
              {fmt::format("VMM_LIMIT={}", limit), "CUDA_VISIBLE_DEVICES=" + device.uuid}}}}});
    }
  }
  nlohmann::ordered_json mounts = nlohmann::ordered_json::array();
  for (const CdiMount& mount : surroundings.mounts) mounts.push_back(mount_of(mount));
  return nlohmann::ordered_json{
      {"cdiVersion", version},
      {"kind", "cuvmm.dev/share"},
      {"devices", described},
      {"containerEdits", {{"env", surroundings.environment}, {"mounts", mounts}}}};
}

}  // namespace cuvmm::cli
