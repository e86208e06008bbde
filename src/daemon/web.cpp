// SPDX-License-Identifier: Apache-2.0
#include "daemon/web.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.hpp"
#include "base/kept_text.hpp"
#include "base/log.hpp"
#include "observe/node_metrics.hpp"
#include "observe/snapshot_json.hpp"
#include "observe/token_file.hpp"

namespace cuvmm::daemon {

Result<std::unique_ptr<Web>> Web::open(const WebOptions& options, Serves serves,
                                       const Broker& broker) {
  auto web = std::unique_ptr<Web>{new Web{options.arguments, serves, broker}};
  observe::WebSettings settings;
  if (!options.token_file.empty()) settings.token = TRY(observe::read_token(options.token_file));
  const mode_t mode = serves == Serves::AllUsers ? 0666 : 0600;
  std::vector<observe::WebListener> listeners;
  for (const observe::WebAddress& address : options.addresses) {
    if (!address.is_loopback && settings.token.empty()) {
      return Error::invalid("serve the live view and the metrics",
                            "an address beyond loopback needs --http-token-file");
    }
    auto listener = observe::WebListener::open(address, mode);
    if (!listener.ok()) return error_at(address.text(), listener.error());
    const std::string at = listener->address().text();
    if (address.path.empty()) {
      CUVMM_LOG(Info, "the live view is at http://%s/%s", at.c_str(),
                settings.token.empty() ? "" : "#TOKEN");
    } else {
      CUVMM_LOG(Info, "metrics are at %s", at.c_str());
    }
    if (!address.is_loopback) {
      CUVMM_LOG(Warning,
                "%s can be reached from other machines; the token travels over it unencrypted",
                at.c_str());
    }
    listeners.push_back(std::move(*listener));
  }
  const bool is_named = std::any_of(
      options.addresses.begin(), options.addresses.end(),
      [&](const observe::WebAddress& address) { return address.path == options.usual_socket; });
  if (!options.usual_socket.empty() && !is_named) {
    auto listener = observe::WebListener::open({.path = options.usual_socket}, mode);
    if (listener.ok()) {
      listeners.push_back(std::move(*listener));
    } else {
      CUVMM_LOG(Warning, "%s: %s; `cuvmm metrics` asks processes instead",
                options.usual_socket.c_str(), listener.error().text().c_str());
    }
  }
  if (options.inherited) {
    listeners.push_back(observe::WebListener::adopt(Fd{*options.inherited}));
  }
  web->server_ = TRY(observe::WebServer::open(std::move(settings), *web, std::move(listeners)));
  return web;
}

// Only its own user and root may see a user's own service.
std::optional<observe::WebViewer> Web::viewer_of(uid_t user) const {
  if (user == 0 || user == ::geteuid()) return observe::WebViewer{.sees_all = true};
  if (serves_ == Serves::OneUser) return {};
  return observe::WebViewer{.user = user};
}

observe::Snapshot Web::snapshot_for(const observe::WebViewer& viewer) const {
  observe::Snapshot all = broker_.snapshot(now_us());
  processes_.add_to(all, arguments_);
  if (!viewer.sees_all) all.hide_others(viewer.user);
  return all;
}

std::string Web::metrics(const observe::WebViewer& viewer, observe::MetricFormat format) {
  return print_metrics(snapshot_for(viewer), format);
}

std::string Web::state(const observe::WebViewer& viewer) {
  return print_json(snapshot_for(viewer));
}

std::string Web::client(const observe::WebViewer& viewer, const std::string& label) {
  return print_client_json(snapshot_for(viewer), label);
}

}  // namespace cuvmm::daemon
