// SPDX-License-Identifier: Apache-2.0
// cuvmm cdi: shares of this machine's cards as devices that containers ask for by name.
#include "cli/cdi.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "base/installed_file.hpp"
#include "base/sim_options.hpp"
#include "cli/commands.hpp"
#include "cli/driver_here.hpp"
#include "cli/install_places.hpp"
#include "cli/output.hpp"
#include "cli/settings.hpp"
#include "driver/driver.hpp"
#include "node/service_socket.hpp"

namespace cuvmm::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* doing = "describe shares";
// The path of our files inside a container.
constexpr const char* inside = "/opt/cuvmm";

struct CdiRequest {
  std::string action;
  std::string shares = "25%,50%,100%";
  std::string version = usual_cdi_version;
  std::string preload = "file";
  std::string socket;
  std::string output;
  std::string simulation;
};

std::string print_uuid(const CUuuid& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

// Also creates the file of a simulated card that processes share, so that it can be mounted.
Result<std::vector<CdiDevice>> devices_here(const CdiRequest& request) {
  std::string path = "libcuda.so.1";
  if (!request.simulation.empty()) path = TRY(find_sim_directory()) + "/" + path;
  const Driver driver = TRY(load_driver(path.c_str()));
  TRY(driver.check(driver.cuInit(0), "start the driver"));
  int count = 0;
  TRY(driver.check(driver.cuDeviceGetCount(&count), "count the devices"));
  std::vector<CdiDevice> devices;
  for (CUdevice device = 0; device < count; ++device) {
    CUuuid uuid{};
    size_t memory = 0;
    TRY(driver.check(driver.cuDeviceGetUuid(&uuid, device), "identify a device"));
    TRY(driver.check(driver.cuDeviceTotalMem(&memory, device), "measure a device"));
    devices.push_back({.index = device, .uuid = print_uuid(uuid), .memory = memory});
  }
  if (devices.empty()) return Error::invalid(doing, "this machine has no CUDA device");
  return devices;
}

// The socket of cuvmmd for containers: by default the usual one, if cuvmmd has run. Empty: none.
std::string node_socket(const CdiRequest& request) {
  if (request.socket == "none") return {};
  if (!request.socket.empty()) return request.socket;
  for (const std::string& usual : node::usual_service_sockets()) {
    if (fs::exists(fs::path{usual}.parent_path())) return usual;
  }
  say("no cuvmmd has run on this machine: containers get limits, but no node service. Start it and "
      "generate again, or say --node-socket none");
  return {};
}

bool is_in_a_folder(const fs::path& path) {
  return path.is_absolute() && fs::is_directory(path.parent_path());
}

// Mounts the socket's folder, so that a container finds the service after a restart.
void add_service(const fs::path& socket, CdiSurroundings& to) {
  if (socket.empty()) return;
  to.mounts.push_back({.host = socket.parent_path().string(), .container = "/run/cuvmm"});
  to.environment.push_back("VMM_NODE_SOCKET=/run/cuvmm/" + socket.filename().string());
}

Result<void> add_preload(const CdiRequest& request, CdiSurroundings& to) {
  const std::string stub = fmt::format("{}/libcuvmm_stub.so", inside);
  to.mounts.push_back(
      {.host = TRY(find_installed_file("libcuvmm_stub.so", "find the stub of the preload library")),
       .container = stub});
  to.mounts.push_back(
      {.host = TRY(find_installed_file("libcuvmm_preload.so", "find the preload library")),
       .container = fmt::format("{}/libcuvmm_preload.so", inside)});
  if (request.preload == "environment") {
    to.environment.push_back("LD_PRELOAD=" + stub);
    return {};
  }
  to.mounts.push_back({.host = TRY(find_installed_file("cuvmm/container/ld.so.preload",
                                                       "find the list of preloads")),
                       .container = "/etc/ld.so.preload"});
  return {};
}

Result<void> add_simulation(CdiSurroundings& to) {
  const std::string folder = fmt::format("{}/sim", inside);
  to.mounts.push_back({.host = TRY(find_sim_directory()), .container = folder});
  to.environment.push_back("LD_LIBRARY_PATH=" + folder);
  for (const OptionRow& row : SimOptions::rows()) {
    const char* const value = std::getenv(std::string{row.name}.c_str());
    if (value != nullptr) to.environment.push_back(fmt::format("{}={}", row.name, value));
  }
  const char* const card = std::getenv("VMM_SIM_CARD");
  if (card == nullptr || *card == '\0') return {};
  const std::string file = fmt::format("/dev/shm/cuvmm-sim-card-{}-{}", ::geteuid(), card);
  to.mounts.push_back({.host = file, .container = file, .is_writable = true});
  return {};
}

Result<CdiSurroundings> surroundings_of(const CdiRequest& request, const std::string& socket) {
  CdiSurroundings surroundings;
  TRY(add_preload(request, surroundings));
  add_service(socket, surroundings);
  if (!request.simulation.empty()) TRY(add_simulation(surroundings));
  return surroundings;
}

// Replaces the file atomically, since runtimes read the folder whenever they start a container.
Result<void> write_file(const std::string& path, const std::string& text) {
  const std::string draft = path + ".new";
  std::ofstream file{draft};
  file << text;
  file.close();
  std::error_code error;
  if (file) fs::rename(draft, path, error);
  if (file && !error) return {};
  const int code = error ? error.value() : errno;
  fs::remove(draft, error);
  return Error{
      .kind = ErrorKind::SystemFailed, .system_code = code, .doing = "write the specification"};
}

int generate(const CdiRequest& request) {
  if (!set_simulation(request.simulation)) return exit_usage;
  if (request.simulation.empty() && !has_driver()) {
    say("this machine has no CUDA driver; --sim describes shares of a simulated card");
    return exit_failed;
  }
  const std::string socket = node_socket(request);
  if (!socket.empty() && !is_in_a_folder(socket)) {
    say(fmt::format("--node-socket {}: not an absolute path in an existing folder",
                    printable(socket)));
    return exit_usage;
  }
  // The specification is JSON, and so holds no other bytes.
  if (printable(socket) != socket) {
    say(fmt::format("--node-socket {}: not UTF-8", printable(socket)));
    return exit_usage;
  }
  const auto devices = devices_here(request);
  if (!devices.ok()) return say(devices.error().text()), exit_failed;
  const auto shares = cdi_shares(request.shares);
  if (const auto problem = problem_of_shares(shares, *devices)) return say(*problem), exit_usage;
  const auto surroundings = surroundings_of(request, socket);
  if (!surroundings.ok()) return say(surroundings.error().text()), exit_failed;
  const std::string text =
      cdi_specification(request.version, *devices, shares, *surroundings).dump(2) + "\n";
  if (request.output.empty()) return fmt::print("{}", text), 0;
  if (lacks_folder(request.output)) return exit_failed;
  const auto written = write_file(request.output, text);
  if (!written.ok()) return say(request.output + ": " + written.error().text()), exit_failed;
  return 0;
}

}  // namespace

void add_cdi(CLI::App& app, int& exit_status) {
  auto request = std::make_shared<CdiRequest>();
  CLI::App* command =
      app.add_subcommand("cdi", "describe shares of this machine's cards to containers");
  command->footer(
      "Examples:\n"
      "  cuvmm cdi generate --shares 4G,8G,50% -o /etc/cdi/cuvmm.json\n"
      "  podman run --device nvidia.com/gpu=0 --device cuvmm.dev/share=gpu0-4g IMAGE …\n"
      "  cuvmm cdi generate --sim=memory=8G,card=mine --shares 4G -o /etc/cdi/cuvmm.json\n"
      "\n"
      "The specification lists a device cuvmm.dev/share=gpuN-SHARE for each card and share. It "
      "adds\n"
      "cuvmm and its limit to a container; the card itself is added by NVIDIA's specification\n"
      "(nvidia-ctk cdi generate). Podman, CRI-O, containerd and Docker read /etc/cdi and\n"
      "/var/run/cdi. Generate it again after an upgrade of cuvmm, or when cards change.");
  command->add_option("action", request->action, "generate")
      ->required()
      ->check(CLI::IsMember({"generate"}))
      ->type_name("generate");
  add_sim_flag(*command, request->simulation,
               "shares of a simulated card, for example --sim=memory=8G,card=NAME");
  command
      ->add_option("--shares", request->shares,
                   "memory that a container may have of a card, for example 4G,50%")
      ->type_name("SHARE,...")
      ->capture_default_str();
  command
      ->add_option("--cdi-version", request->version,
                   "version of the specification; Debian 12's podman accepts no newer than 0.5.0")
      ->type_name("VERSION")
      ->capture_default_str();
  command
      ->add_option("--preload", request->preload,
                   "how programs in the container load cuvmm: by /etc/ld.so.preload, which works "
                   "even if a program clears its environment, or by LD_PRELOAD")
      ->check(CLI::IsMember({"file", "environment"}))
      ->type_name("file|environment")
      ->capture_default_str();
  command
      ->add_option("--node-socket", request->socket,
                   "cuvmmd's socket, or none; else the usual one, if its folder exists")
      ->type_name("PATH");
  command->add_option("-o,--output", request->output, "where to write it, else standard output")
      ->type_name("FILE");
  command->callback([request, &exit_status] {
    if (!is_cdi_version(request->version)) {
      say(fmt::format("--cdi-version {}: must be 0.3.0 to 1.0.0", printable(request->version)));
      exit_status = exit_usage;
      return;
    }
    exit_status = generate(*request);
  });
}

}  // namespace cuvmm::cli
