// SPDX-License-Identifier: Apache-2.0
// cuvmmd: the node service (docs/node.md).
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/log.hpp"
#include "base/options.hpp"
#include "cuvmm/version.h"
#include "daemon/server.hpp"
#include "daemon/simulation.hpp"
#include "node/service_socket.hpp"
#include "observe/token_file.hpp"
#include "share/private_folder.hpp"
#include "usage/help_format.hpp"
#include "usage/manual.hpp"
#include "usage/wrong_usage.hpp"

namespace cuvmm::daemon {
namespace {

constexpr int exit_usage = 2;
constexpr const char* usual_config = "/etc/cuvmm/cuvmmd.toml";

struct DaemonRequest {
  std::string socket;
  std::string config;
  std::vector<std::string> capacity;  // 0=24G
  std::string simulation;
  bool check = false;
  bool all_users = false;
  std::string time;  // a policy's name; empty: from the configuration
  std::string deep_pause_after;
  std::string log_level = "info";
  std::vector<std::string> http;
  std::string http_token_file;
  bool http_arguments = false;
};

void complain(const std::string& text) {
  std::fprintf(stderr, "cuvmmd: %s\n", text.c_str());
}

// Makes the folder, whatever the umask. An existing one may have been closed on purpose.
void let_users_into(const char* folder) {
  struct stat facts {};
  if (::mkdir(folder, 0755) == 0) {
    ::chmod(folder, 0755);
  } else if (::stat(folder, &facts) == 0 && (facts.st_mode & S_IXOTH) == 0) {
    CUVMM_LOG(Warning, "%s is closed to other users, who cannot reach the service", folder);
  }
}

// The default: root serves the machine, other users serve themselves.
Result<std::string> usual_socket(Serves serves) {
  const std::vector<std::string> usual = node::usual_service_sockets();
  if (serves == Serves::AllUsers) {
    let_users_into("/run/cuvmm");
    return usual.back();
  }
  if (usual.size() == 1) {
    return Error::invalid("choose a socket", "XDG_RUNTIME_DIR is not set; --socket names one");
  }
  const std::string folder = std::filesystem::path{usual.front()}.parent_path().string();
  TRY(share::PrivateFolder::open_or_make(folder));
  return usual.front();
}

// The sockets passed by systemd, from descriptor 3 on: first the clients', then that for HTTP.
struct InheritedSockets {
  std::optional<int> clients;
  std::optional<int> http;
};
InheritedSockets inherited_sockets() {
  const char* const process = std::getenv("LISTEN_PID");
  const char* const count = std::getenv("LISTEN_FDS");
  if (process == nullptr || count == nullptr) return {};
  const auto given = read_integer(count).value_or(0);
  if (read_integer(process) != ::getpid() || given < 1) return {};
  ::unsetenv("LISTEN_PID");
  ::unsetenv("LISTEN_FDS");
  return {3, given > 1 ? std::optional{4} : std::nullopt};
}

bool read_web_options(const DaemonRequest& request, WebOptions& web) {
  for (const std::string& word : request.http) {
    const auto address = observe::read_web_address(word);
    if (!address) {
      complain("--http " + word +
               ": must be ADDRESS:PORT, a port of 127.0.0.1, or a socket's path");
      return false;
    }
    if (!address->is_loopback && request.http_token_file.empty()) {
      complain("--http " + word + ": beyond loopback it needs --http-token-file");
      return false;
    }
    web.addresses.push_back(*address);
  }
  web.token_file = request.http_token_file;
  if (request.http_arguments) web.arguments = observe::ShowsArguments::Yes;
  return true;
}

bool read_capacity(const DaemonRequest& request, std::map<std::string, Size>& capacity) {
  for (const std::string& word : request.capacity) {
    const std::size_t equals = word.find('=');
    const auto size = equals == std::string::npos
                          ? std::nullopt
                          : OptionType<Bytes>::read(word.substr(equals + 1));
    if (!size) {
      complain("--capacity " + word + ": must be DEVICE=SIZE, for example 0=24G");
      return false;
    }
    capacity[word.substr(0, equals)] = size->value;
  }
  return true;
}

// Each client takes two or more.
void allow_all_descriptors() {
  rlimit descriptors{};
  if (::getrlimit(RLIMIT_NOFILE, &descriptors) != 0) return;
  descriptors.rlim_cur = descriptors.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &descriptors);
}

// SIGHUP stays pending until the server can reload its configuration.
void keep_reloads_for_later() {
  sigset_t reload;
  ::sigemptyset(&reload);
  ::sigaddset(&reload, SIGHUP);
  ::sigprocmask(SIG_BLOCK, &reload, nullptr);
}

int serve(const DaemonRequest& request) {
  keep_reloads_for_later();
  const auto level = OptionType<LogLevel>::read(request.log_level);
  if (!level) return complain("--log-level: allowed: " + OptionType<LogLevel>::allowed()), 2;
  static_cast<void>(set_up_log({.level = *level, .file = {}}).ok());
  if (const auto problem = set_simulation(request.simulation)) {
    return complain(*problem), exit_usage;
  }

  ServerSettings settings;
  const bool is_of_the_machine =
      ::geteuid() == 0 && (request.socket.empty() || std::getenv("LISTEN_FDS") != nullptr);
  settings.serves = request.all_users || is_of_the_machine ? Serves::AllUsers : Serves::OneUser;
  settings.config = request.config;
  const bool has_usual = request.config.empty() && settings.serves == Serves::AllUsers &&
                         ::access(usual_config, F_OK) == 0;
  if (has_usual) settings.config = usual_config;
  if (!settings.config.empty()) {
    const ConfigRead read = read_config(settings.config, settings.serves);
    if (!read.ok()) return complain(read.problem), exit_usage;
    settings.read = read.config;
  }
  if (!read_capacity(request, settings.capacity)) return exit_usage;
  for (const auto& [name, bytes] : settings.capacity) settings.read.capacity[name] = bytes;

  if (!read_web_options(request, settings.web)) return exit_usage;
  if (!request.http_token_file.empty()) {
    const auto token = observe::read_token(request.http_token_file);
    if (!token.ok()) return complain(request.http_token_file + ": " + token.error().text()), 1;
  }
  if (!request.time.empty()) {
    settings.time = read_time_rule(request.time);
    if (!settings.time) return complain("--time: allowed: off, share, priority, turns"), 2;
    settings.read.time.rule = *settings.time;
  }

  if (!request.deep_pause_after.empty()) {
    settings.deep_pause = read_deep_pause_rule(request.deep_pause_after);
    if (!settings.deep_pause) {
      return complain("--deep-pause-after: allowed: " + OptionType<Duration>::allowed() +
                      ", or off"),
             exit_usage;
    }
    settings.read.deep_pause = *settings.deep_pause;
  }

  std::vector<observe::NodeDevice> devices;
  auto loaded = load_nvml(!request.simulation.empty());
  if (!loaded.ok()) return complain(loaded.error().text()), 1;
  auto seen = loaded->devices();
  if (!seen.ok()) return complain(seen.error().text()), 1;
  devices = std::move(*seen);

  if (request.check) {
    Broker broker{{.serves = settings.serves, .user = ::geteuid(), .devices = devices, .times = {}},
                  [](ConnectionId, const std::vector<Broker::Packet>&) {},
                  [](ConnectionId) {}};
    if (const auto problem = broker.configure(settings.read, 0)) return complain(*problem), 1;
    for (const auto& [place, facts] : broker.policy().books().places()) {
      const bool is_host = facts.kind == node::PlaceKind::Host;
      std::printf("%s: %s\n", is_host ? "host" : ("device " + std::to_string(place - 1)).c_str(),
                  print_size(facts.capacity).c_str());
    }
    const std::size_t rules = settings.read.rules.size();
    std::printf("guaranteed: %s by %zu %s\n", print_size(settings.read.guaranteed()).c_str(), rules,
                rules == 1 ? "rule" : "rules");
    return 0;
  }

  allow_all_descriptors();
  const InheritedSockets inherited = inherited_sockets();
  settings.inherited = inherited.clients;
  settings.web.inherited = inherited.http;
  settings.socket = request.socket;
  if (!settings.inherited && settings.socket.empty()) {
    auto usual = usual_socket(settings.serves);
    if (!usual.ok()) return complain(usual.error().text()), 1;
    settings.socket = std::move(*usual);
  }
  if (!settings.web.inherited && !settings.socket.empty()) {
    settings.web.usual_socket = node::web_socket_beside(settings.socket);
  }
  auto server = Server::open(settings, std::move(devices), std::move(*loaded));
  if (!server.ok()) return complain(server.error().text()), 1;
  CUVMM_LOG(Info, "cuvmmd %s serves %s at %s", CUVMM_VERSION_STRING,
            settings.serves == Serves::AllUsers ? "all users" : "its own user",
            settings.inherited ? "the socket it was handed" : settings.socket.c_str());
  const auto ended = (*server)->run();
  if (!ended.ok()) return complain(ended.error().text()), 1;
  return 0;
}

void print_manual(const CLI::App& app) {
  const usage::ManualPage page{.name = "cuvmmd",
                               .number = 8,
                               .command = "cuvmmd",
                               .sections = {},
                               .see_also = {"cuvmm(1)", "cuvmm-set(1)", "cuvmm-top(1)"}};
  std::fputs(usage::manual(page, usage::described(app).front()).c_str(), stdout);
}

int run(int count, char** words) {
  DaemonRequest request;
  CLI::App app{
      "decide which programs on this machine hold how much GPU memory, and reclaim it from one for "
      "another",
      "cuvmmd"};
  app.set_version_flag("--version", "cuvmmd " CUVMM_VERSION_STRING);
  app.formatter(std::make_shared<usage::HelpFormat>());
  app.footer(
      "Examples:\n"
      "  cuvmmd &                              for this user's programs\n"
      "  systemctl enable --now cuvmmd.socket  for all users (with the Debian package)\n"
      "  cuvmmd --check --config cuvmmd.toml   what a configuration would give\n"
      "  cuvmmd --sim=card=mine,memory=8G &    without a GPU, for programs that run under\n"
      "                                        cuvmm run --sim=card=mine,memory=8G\n"
      "\n"
      "As root it serves all users and reads /etc/cuvmm/cuvmmd.toml if it exists. Without the\n"
      "service, programs share a card as natively; while it is away, they keep what they have.\n"
      "\n"
      "SIGHUP rereads the configuration; SIGTERM and SIGINT end the service.\n"
      "\n"
      "Exit status: 0, or 1 if it cannot serve; 2 on wrong usage or a wrong configuration.");
  app.add_option(
         "--socket", request.socket,
         "where to listen; by default $XDG_RUNTIME_DIR/cuvmm/cuvmmd.sock for this user, or, "
         "as root, /run/cuvmm/cuvmmd.sock for all users")
      ->type_name("PATH");
  app.add_option("--config", request.config, "capacity, guarantees and limits; reread on SIGHUP")
      ->type_name("FILE");
  app.add_option(
         "--capacity", request.capacity,
         "how much of a device all clients together may have, for example 0=24G; else all of it")
      ->type_name("DEVICE=SIZE");
  app.add_option("--time", request.time,
                 "how programs share the devices' time; overrides the configuration's [time] "
                 "policy")
      ->type_name("off|share|priority|turns");
  app.add_option("--deep-pause-after", request.deep_pause_after,
                 "also take a paused program's contexts and modules off its devices after this "
                 "long, for example 10m, without a waiting call; off, as by default: never. "
                 "Overrides the configuration's deep_pause_after")
      ->type_name("TIME");
  app.add_flag("--sim", request.simulation,
               "a simulated card, for example --sim=card=NAME,memory=8G")
      ->multi_option_policy(CLI::MultiOptionPolicy::Join);
  app.add_flag("--all-users", request.all_users,
               "serve all users, as root's service does without --socket");
  app.add_flag("--check", request.check, "read the configuration, print the result, and exit");
  app.add_option("--http", request.http,
                 "serve the live view and /metrics there too: 9435 (a port of 127.0.0.1), "
                 "ADDRESS:PORT or a socket's path; beyond loopback it needs a token")
      ->type_name("ADDRESS");
  app.add_option("--http-token-file", request.http_token_file,
                 "its first line is the token that shows all users' clients, and that other "
                 "users and machines need")
      ->type_name("FILE");
  app.add_flag("--http-arguments", request.http_arguments,
               "show the arguments of programs, which may hold secrets");
  app.add_option("--log-level", request.log_level, "how much is logged")
      ->type_name("error|warning|info|debug")
      ->capture_default_str();
  bool prints_manual = false;
  app.add_flag("--manual", prints_manual, "print the manual page")->group("");  // for the build
  try {
    app.parse(count, words);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    return complain(usage::wrong_usage(app, error)), exit_usage;
  }
  if (prints_manual) return print_manual(app), 0;
  return serve(request);
}

}  // namespace
}  // namespace cuvmm::daemon

int main(int count, char** words) {
  try {
    cuvmm::daemon::run_as_helper(count, words);
    return cuvmm::daemon::run(count, words);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cuvmmd: %s\n", error.what());
    return 1;
  }
}
