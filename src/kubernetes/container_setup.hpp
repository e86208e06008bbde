// SPDX-License-Identifier: Apache-2.0
// The environment and mounts that make a container's programs run under cuvmm, within their share
// of a card.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kubernetes/units.hpp"

namespace cuvmm::kubernetes {

// How the container runtime learns which card to make visible.
enum class CardExposure : std::uint8_t {
  Environment,  // NVIDIA_VISIBLE_DEVICES, read by NVIDIA's runtime
  Cdi,          // nvidia.com/gpu=UUID, from the specification that nvidia-ctk generates
  None,         // another component does it, or there is no card
};

struct ContainerOptions {
  std::string libraries;    // host folder with the preload library and its stub
  std::string node_socket;  // host path of cuvmmd's socket; empty: do not use cuvmmd
  bool node_is_required = false;
  CardExposure exposure = CardExposure::Environment;
  std::map<std::string, std::string> simulation;  // VMM_SIM_…; empty: real cards
};

struct ContainerMount {
  std::string inside;
  std::string host;
  bool is_read_only = true;
};

struct ContainerSetup {
  std::map<std::string, std::string> environment;
  std::vector<ContainerMount> mounts;
  std::vector<std::string> cdi_devices;
};

// The libraries' folder inside the container. The stub finds the preload library beside itself.
inline constexpr const char* libraries_inside = "/usr/local/lib/cuvmm";
inline constexpr const char* stub_name = "libcuvmm_stub.so";
inline constexpr const char* preload_name = "libcuvmm_preload.so";

ContainerSetup set_up_container(const Card& card, std::size_t units,
                                const ContainerOptions& options);

}  // namespace cuvmm::kubernetes
