// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "daemon/web.hpp"
#include "share/runtime_socket.hpp"

namespace cuvmm::daemon {

struct ServerSettings {
  std::string socket;                    // where it listens, unless it was handed a socket
  std::optional<int> inherited;          // by systemd
  std::string config;                    // the file that is read again at SIGHUP; empty: none
  ServiceConfig read;                    // what it says now, and what the command line said
  std::map<std::string, Size> capacity;  // of the command line, which goes before the file's
  std::optional<node::TimeRule> time;    // the same
  Serves serves = Serves::OneUser;
  WebOptions web;
};

// The service's sockets: one thread that waits for clients, timers and signals, and hands what they
// say to the broker. A client that sends garbage or too many messages, or does not read what it
// is sent, loses its connection; nobody else notices.
class Server {
 public:
  // AlreadyExists where a service listens there.
  static Result<std::unique_ptr<Server>> open(const ServerSettings& settings,
                                              std::vector<NodeDevice> devices,
                                              std::optional<Nvml> nvml);

  // Until SIGTERM or SIGINT.
  Result<void> run();

 private:
  struct Connection {
    Fd socket;
    int pidfd = -1;  // the broker's
    struct Unsent {
      std::vector<std::byte> packet;
      Fd descriptor = {};  // that goes with it
    };
    std::deque<Unsent> unsent = {};  // while the other side does not read
    double tokens = 0;               // for messages
    node::Microseconds tokens_at = 0;
    bool is_ending = false;
    bool wants_room = false;
  };
  enum class Source : std::uint32_t { Listening, Timer, Signals, Poll, Connection, Process, Web };

  explicit Server(const ServerSettings& settings) : settings_(settings) {}
  Result<void> watch(int descriptor, std::uint32_t events, Source source, std::uint64_t id) const;
  void set_timer() const;
  bool handle_signal();
  void reload();
  void poll_use();
  void let_in();
  void receive(ConnectionId id);
  bool may_say_more(Connection& connection) const;
  void send(ConnectionId id, std::vector<std::byte> packet, Fd descriptor = {});
  void flush(ConnectionId id, Connection& connection);
  void want_room(ConnectionId id, Connection& connection, bool wanted) const;
  void end_those_that_are_ending();

  const ServerSettings settings_;
  std::optional<share::ListeningSocket> own_socket_;
  Fd inherited_socket_;
  int listening_ = -1;
  Fd epoll_;
  Fd timer_;
  Fd poll_timer_;
  Fd signals_;
  Fd spare_;  // closed for a moment to refuse somebody when there are no descriptors left
  std::optional<Nvml> nvml_;
  std::vector<NodeDevice> devices_;
  std::unique_ptr<Broker> broker_;
  std::unique_ptr<Web> web_;
  std::map<ConnectionId, Connection> connections_;
  ConnectionId last_id_ = 0;
  bool some_are_ending_ = false;
  bool has_heard_ = true;  // of a client since NVML was last polled
  int quiet_polls_ = 0;
};

}  // namespace cuvmm::daemon
