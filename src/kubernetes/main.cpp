// SPDX-License-Identifier: Apache-2.0
// cuvmm-device-plugin: units of card memory for Kubernetes (docs/kubernetes.md).
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/log.hpp"
#include "base/options.hpp"
#include "cuvmm/version.h"
#include "daemon/simulation.hpp"
#include "kubernetes/plugin.hpp"
#include "usage/help_format.hpp"
#include "usage/wrong_usage.hpp"

namespace cuvmm::kubernetes {
namespace {

constexpr int exit_usage = 2;
constexpr const char* program = "cuvmm-device-plugin";

struct PluginRequest {
  PluginPlace place{"/var/lib/kubelet/device-plugins", "cuvmm.dev/memory-gib"};
  ContainerOptions container;
  std::string node = "auto";
  std::string node_socket = "/run/cuvmm/cuvmmd.sock";
  std::string expose = "environment";
  std::string reserve = "1G";
  std::string simulation;
  bool check = false;
  std::string log_level = "info";
};

void complain(const std::string& text) {
  std::fprintf(stderr, "%s: %s\n", program, text.c_str());
}

std::map<std::string, std::string> simulation_variables() {
  std::map<std::string, std::string> found;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    const std::size_t equals = text.find('=');
    if (text.starts_with("VMM_SIM_") && equals != std::string::npos) {
      found[text.substr(0, equals)] = text.substr(equals + 1);
    }
  }
  return found;
}

// Completes the request from its arguments. Returns the problem with them, if any.
std::optional<std::string> read_words(PluginRequest& request) {
  if (!request.simulation.empty()) {
    if (auto problem = daemon::set_simulation(request.simulation)) return problem;
    request.container.simulation = simulation_variables();
    if (!request.container.simulation.contains("VMM_SIM_CARD")) {
      return "--sim: containers share nothing without a card's name, for example "
             "--sim=card=mine,memory=8G";
    }
  }
  if (request.node != "off") request.container.node_socket = request.node_socket;
  request.container.node_is_required = request.node == "require";
  if (request.expose == "cdi") request.container.exposure = CardExposure::Cdi;
  if (request.expose == "none") request.container.exposure = CardExposure::None;

  for (const char* const name : {preload_name, stub_name}) {
    const std::string library = request.container.libraries + "/" + name;
    if (::access(library.c_str(), R_OK) != 0) {
      return library + " cannot be read: --libraries names the host's folder with that file";
    }
  }
  return {};
}

std::vector<Card> cards_of(const std::vector<observe::NodeDevice>& devices, Size reserve) {
  std::vector<Card> cards;
  cards.reserve(devices.size());
  for (const observe::NodeDevice& device : devices) {
    cards.push_back({.uuid = observe::print_uuid(device.uuid),
                     .index = device.index,
                     .units = units_of(device.memory, reserve)});
  }
  return cards;
}

int serve(PluginRequest request) {
  const auto level = OptionType<LogLevel>::read(request.log_level);
  if (!level) return complain("--log-level: allowed: " + OptionType<LogLevel>::allowed()), 2;
  static_cast<void>(set_up_log({.name = program, .level = *level, .file = {}}).ok());
  const auto reserve = OptionType<Bytes>::read(request.reserve);
  if (!reserve) {
    complain("--reserve " + request.reserve + ": must be a size, for example 1G");
    return exit_usage;
  }
  if (const auto problem = read_words(request)) return complain(*problem), exit_usage;

  auto nvml = daemon::load_nvml(!request.simulation.empty());
  if (!nvml.ok()) return complain(nvml.error().text()), 1;
  const auto devices = nvml->devices();
  if (!devices.ok()) return complain(devices.error().text()), 1;
  const std::vector<Card> cards = cards_of(*devices, reserve->value);
  if (cards.empty()) return complain("NVML lists no card on this node"), 1;
  if (request.check) {
    for (const Card& card : cards) {
      std::printf("%s: %u units of %s\n", card.uuid.c_str(), unsigned{card.units},
                  request.place.resource.c_str());
    }
    return 0;
  }

  PluginService service{Units{cards}, request.container};
  auto plugin = Plugin::open(request.place, service, [&] {
    for (std::size_t card = 0; card < cards.size(); ++card) {
      service.set_health(card, nvml->use(cards[card].index).has_value());
    }
  });
  if (!plugin.ok()) return complain(plugin.error().text()), 1;
  const auto ended = (*plugin)->run();
  if (!ended.ok()) return complain(ended.error().text()), 1;
  return 0;
}

int run(int count, char** words) {
  PluginRequest request;
  CLI::App app{
      "offer the memory of this node's cards to Kubernetes in units of 1 GiB, and put containers "
      "that get some under cuvmm, with that much as their limit",
      program};
  app.set_version_flag("--version", std::string{program} + " " CUVMM_VERSION_STRING);
  app.formatter(std::make_shared<usage::HelpFormat>());
  app.add_option(
         "--libraries", request.container.libraries,
         "the host's folder with the preload library and its stub, which containers see read-only")
      ->type_name("FOLDER")
      ->required();
  app.add_option("--plugins-folder", request.place.folder, "where the kubelet has its sockets")
      ->type_name("FOLDER")
      ->capture_default_str();
  app.add_option("--resource", request.place.resource, "what pods ask for")
      ->type_name("NAME")
      ->capture_default_str();
  app.add_option("--reserve", request.reserve,
                 "kept free on each card for memory that no limit covers, such as CUDA contexts")
      ->type_name("SIZE")
      ->capture_default_str();
  app.add_option("--node", request.node,
                 "whether containers use the node's cuvmmd: off, auto or require")
      ->check(CLI::IsMember({"off", "auto", "require"}))
      ->capture_default_str();
  app.add_option("--node-socket", request.node_socket, "where cuvmmd listens")
      ->type_name("PATH")
      ->capture_default_str();
  app.add_option("--expose", request.expose,
                 "how the container gets its card: environment (NVIDIA_VISIBLE_DEVICES), cdi "
                 "(nvidia.com/gpu=UUID) or none")
      ->check(CLI::IsMember({"environment", "cdi", "none"}))
      ->capture_default_str();
  app.add_flag("--sim", request.simulation,
               "a simulated card, for example --sim=card=NAME,memory=8G")
      ->multi_option_policy(CLI::MultiOptionPolicy::Join);
  app.add_flag("--check", request.check, "print the units of each card, and end");
  app.add_option("--log-level", request.log_level, "how much is logged")
      ->type_name("error|warning|info|debug")
      ->capture_default_str();
  try {
    app.parse(count, words);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    return complain(usage::wrong_usage(app, error)), exit_usage;
  }
  return serve(std::move(request));
}

}  // namespace
}  // namespace cuvmm::kubernetes

int main(int count, char** words) {
  try {
    return cuvmm::kubernetes::run(count, words);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cuvmm-device-plugin: %s\n", error.what());
    return 1;
  }
}
