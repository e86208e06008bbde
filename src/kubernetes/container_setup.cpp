// SPDX-License-Identifier: Apache-2.0
#include "kubernetes/container_setup.hpp"

#include <filesystem>

namespace cuvmm::kubernetes {

ContainerSetup set_up_container(const Card& card, std::size_t units,
                                const ContainerOptions& options) {
  ContainerSetup setup;
  auto& environment = setup.environment;
  const std::string inside = libraries_inside;
  setup.mounts.push_back({inside, options.libraries});
  // The preload library needs a recent glibc. Without one, no program of the image would start.
  environment["LD_PRELOAD"] = inside + "/" + stub_name;
  environment["VMM_LIMIT"] = std::to_string(units) + "G";

  environment["VMM_NODE"] = "off";
  if (!options.node_socket.empty()) {
    environment["VMM_NODE"] = options.node_is_required ? "require" : "auto";
    environment["VMM_NODE_SOCKET"] = options.node_socket;
    // Mount the folder, since a restarted service creates a new socket there.
    const std::string folder = std::filesystem::path{options.node_socket}.parent_path().string();
    setup.mounts.push_back({folder, folder});
  }

  if (!options.simulation.empty()) {
    environment.insert(options.simulation.begin(), options.simulation.end());
    environment["LD_LIBRARY_PATH"] = inside + "/cuvmm/sim";
    // The state of a card that processes share is a file there.
    setup.mounts.push_back({"/dev/shm", "/dev/shm", false});
    return setup;
  }
  switch (options.exposure) {
    case CardExposure::Environment:
      environment["NVIDIA_VISIBLE_DEVICES"] = card.uuid;
      break;
    case CardExposure::Cdi:
      setup.cdi_devices.push_back("nvidia.com/gpu=" + card.uuid);
      break;
    case CardExposure::None:
      break;
  }
  return setup;
}

}  // namespace cuvmm::kubernetes
