// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/deep_pause_helper.hpp"
#include "node/message.hpp"

namespace cuvmm::daemon {

// Runs the helpers that take clients off their devices and bring them back, and relays the messages
// between each helper and its client.
class DeepPauses {
 public:
  struct Links {
    std::function<void(node::ClientId, const node::PresenceDemand&)> say;
    // Not called for a client that has gone.
    std::function<void(node::ClientId, DeepPauseWay, const HelperReport&)> ended;
  };
  static Result<std::unique_ptr<DeepPauses>> open(Links links);

  // Readable once handle() has something to do.
  int descriptor() const { return epoll_.number(); }
  void handle();

  // Starts a helper for the client, which must not have one yet. handle() reports its end, even if
  // the helper could not be started.
  void begin(node::ClientId client, DeepPauseWay way, const Peer& peer);
  void answered(node::ClientId client, const node::PresenceAnswer& said);
  // The client has gone. Its helper undoes what it can on its own.
  void gone(node::ClientId client);

 private:
  struct Helper {
    DeepPauseWay way = DeepPauseWay::Off;
    pid_t process = 0;  // 0: it could not be started
    Fd socket = {};
    std::uint32_t awaits = 0;  // the demand whose answer it waits for; 0: none
    bool has_client = true;
    std::optional<HelperReport> report = {};
  };
  using Helpers = std::map<node::ClientId, Helper>;

  explicit DeepPauses(Links links) : links_(std::move(links)) {}
  Result<void> watch(int descriptor, std::uint64_t id) const;
  enum class Listens : std::uint8_t { No, Yes };
  Listens listen(node::ClientId client, Helper& helper);
  void end(Helpers::iterator helper);
  void end_those_that_never_began();
  std::string reap(const Helper& ended);

  const Links links_;
  Fd epoll_;
  Fd some_never_began_;  // an eventfd
  Helpers helpers_;
  std::vector<pid_t> ending_;  // processes still to be reaped
  std::uint32_t last_demand_ = 0;
};

}  // namespace cuvmm::daemon
