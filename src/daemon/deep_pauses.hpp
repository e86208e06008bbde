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

// The helpers at work for clients, and the conversation of each with its client, which goes through
// the service.
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

  // At most one helper at a time for a client. The end is reported by handle(), also if no helper
  // can be started.
  void begin(node::ClientId client, DeepPauseWay way, const Peer& peer);
  void answered(node::ClientId client, const node::PresenceAnswer& said);
  // Its helper undoes what it can without the client.
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
  std::string reap(pid_t process);

  const Links links_;
  Fd epoll_;
  Fd some_never_began_;  // an eventfd
  Helpers helpers_;
  std::vector<pid_t> ending_;  // processes that have not quite ended
  std::uint32_t last_demand_ = 0;
};

}  // namespace cuvmm::daemon
