// SPDX-License-Identifier: Apache-2.0
// cuvmm top --web: serves the live view while the command runs.
#include "cli/top/web.hpp"

#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>

#include <cstdio>

#include "cli/node_source.hpp"
#include "cli/output.hpp"
#include "observe/token_file.hpp"
#include "observe/web_server.hpp"

namespace cuvmm::cli {
namespace {

Fd ending_signals() {
  sigset_t handled;
  ::sigemptyset(&handled);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) ::sigaddset(&handled, signal);
  ::sigprocmask(SIG_BLOCK, &handled, nullptr);
  return Fd{::signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK)};
}

Result<std::unique_ptr<observe::WebServer>> open_server(const TopWebRequest& request,
                                                        std::string token, NodeSource& source) {
  const auto address = observe::read_web_address(request.address);
  if (!address) return Error::invalid("serve the live view", "the address is not readable");
  observe::WebSettings settings;
  settings.interval_us = static_cast<std::uint64_t>(request.interval.count());
  settings.token = std::move(token);
  if (!address->is_loopback && settings.token.empty()) {
    return Error::invalid("serve the live view", "an address beyond loopback needs --token-file");
  }
  std::vector<observe::WebListener> listeners;
  listeners.push_back(TRY(observe::WebListener::open(*address, 0600)));
  return observe::WebServer::open(std::move(settings), source, std::move(listeners));
}

}  // namespace

int serve_top(const TopWebRequest& request) {
  if (const auto address = observe::read_web_address(request.address);
      !address || !address->path.empty()) {
    say(fmt::format("--web={}: allowed: PORT or ADDRESS:PORT", printable(request.address)));
    return exit_usage;
  }
  std::string token;
  if (!request.token_file.empty()) {
    auto read = observe::read_token(request.token_file);
    if (!read.ok()) {
      say(printable(request.token_file) + ": " + read.error().text());
      return exit_failed;
    }
    token = std::move(*read);
  }
  const auto source = source_here(request.arguments);
  const auto server = open_server(request, std::move(token), *source);
  if (!server.ok()) {
    say(server.error().text());
    return 1;
  }
  const observe::WebAddress& address = (*server)->listeners().front().address();
  if (!address.is_loopback) {
    say("other machines can reach this address; the token travels over it unencrypted");
  }
  fmt::print("http://{}/{}\n", address.text(), request.token_file.empty() ? "" : "#TOKEN");
  std::fflush(stdout);
  const Fd signals = ending_signals();
  pollfd waits[] = {{.fd = (*server)->descriptor(), .events = POLLIN, .revents = 0},
                    {.fd = signals.number(), .events = POLLIN, .revents = 0}};
  while (waits[1].revents == 0) {
    (*server)->handle();
    if (::poll(waits, 2, -1) < 0 && errno != EINTR) return 1;
  }
  return 0;
}

}  // namespace cuvmm::cli
