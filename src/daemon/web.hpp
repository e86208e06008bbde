// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "daemon/broker.hpp"
#include "observe/published.hpp"
#include "observe/web_server.hpp"

namespace cuvmm::daemon {

struct WebOptions {
  std::vector<observe::WebAddress> addresses;
  std::string usual_socket;      // also served if it can be opened; empty: none
  std::optional<int> inherited;  // a Unix socket from systemd
  std::string token_file;        // its first line is the token; empty: none
  observe::ShowsArguments arguments = observe::ShowsArguments::No;
};

// Serves the metrics and the live view of the node service.
class Web final : public observe::WebSource {
 public:
  static Result<std::unique_ptr<Web>> open(const WebOptions& options, Serves serves,
                                           const Broker& broker);

  int descriptor() const { return server_->descriptor(); }
  void handle() { server_->handle(); }

  void refresh() override { processes_.ask(); }
  bool is_fresh() override { return processes_.look(); }
  std::optional<observe::WebViewer> viewer_of(uid_t user) const override;
  std::string metrics(const observe::WebViewer& viewer, observe::MetricFormat format) override;
  std::string state(const observe::WebViewer& viewer) override;
  std::string client(const observe::WebViewer& viewer, const std::string& label) override;

 private:
  Web(observe::ShowsArguments arguments, Serves serves, const Broker& broker)
      : arguments_(arguments), serves_(serves), broker_(broker) {}
  observe::Snapshot snapshot_for(const observe::WebViewer& viewer) const;

  const observe::ShowsArguments arguments_;
  const Serves serves_;
  const Broker& broker_;
  observe::PublishedProcesses processes_;
  std::unique_ptr<observe::WebServer> server_;
};

}  // namespace cuvmm::daemon
