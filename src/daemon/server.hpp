// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "base/spare_descriptor.hpp"
#include "daemon/broker.hpp"
#include "daemon/use_poll.hpp"
#include "daemon/web.hpp"
#include "share/runtime_socket.hpp"

namespace cuvmm::daemon {

struct ServerSettings {
  std::string socket;                    // where it listens, unless it inherited a socket
  std::optional<int> inherited;          // from systemd
  std::string config;                    // the file to read again at SIGHUP; empty: none
  ServiceConfig read;                    // its contents, overridden by the command line
  std::map<std::string, Size> capacity;  // from the command line, which overrides the file
  std::optional<node::TimeRule> time;    // the same
  std::optional<DeepPauseRule> deep_pause;
  Serves serves = Serves::OneUser;
  WebOptions web;
};

// The service's event loop: one thread that waits for clients, timers and signals, and passes
// clients' messages to the broker. A client that sends garbage or too many messages, or does not
// read its own, is disconnected without affecting others.
class Server {
 public:
  // AlreadyExists if another service listens there.
  static Result<std::unique_ptr<Server>> open(const ServerSettings& settings,
                                              std::vector<observe::NodeDevice> devices,
                                              observe::Nvml nvml);

  // Runs until SIGTERM or SIGINT.
  Result<void> run();

 private:
  struct Connection {
    Fd socket;
    int pidfd = -1;  // owned by the broker
    uid_t user = 0;
    node::Microseconds since = 0;
    bool has_spoken = false;
    struct Unsent {
      std::vector<std::byte> packet;
      Fd descriptor = {};  // sent along with it
    };
    std::deque<Unsent> unsent = {};  // until the other side reads
    double tokens = 0;               // messages that the client may send now
    node::Microseconds tokens_at = 0;
    bool is_ending = false;
    bool wants_room = false;
    bool is_to_be_heard = false;  // listed in to_hear_
  };
  enum class Source : std::uint32_t {
    Listening,
    Timer,
    Signals,
    Poll,
    Use,
    Connection,
    Process,
    Web,
    DeepPauses
  };

  explicit Server(const ServerSettings& settings) : settings_(settings) {}
  Result<void> watch(int descriptor, std::uint32_t events, Source source, std::uint64_t id) const;
  void set_timer() const;
  bool handle_signal();
  void reload();
  void ask_for_use();
  void saw(const std::vector<UsePoll::Seen>& seen);
  void let_in();
  void hear_clients();
  void receive(ConnectionId id, node::Microseconds until);
  bool has_too_many_connections(uid_t user) const;
  void end_unspoken_connections();
  bool may_say(Connection& connection, std::size_t bytes) const;
  Connection* reader(ConnectionId id);
  void send(ConnectionId id, std::vector<Broker::Packet> packets);
  void send_with(ConnectionId id, Broker::Packet packet, Fd descriptor);
  void flush(ConnectionId id, Connection& connection);
  void want_room(ConnectionId id, Connection& connection, bool wanted) const;
  void close_ending_connections();

  const ServerSettings settings_;
  std::optional<share::ListeningSocket> own_socket_;
  Fd inherited_socket_;
  int listening_ = -1;
  Fd epoll_;
  Fd timer_;
  Fd poll_timer_;
  Fd signals_;
  SpareDescriptor spare_;
  std::unique_ptr<Broker> broker_;
  std::unique_ptr<UsePoll> use_poll_;
  std::unique_ptr<Web> web_;
  std::unique_ptr<DeepPauses> deep_pauses_;
  std::map<ConnectionId, Connection> connections_;
  std::deque<ConnectionId> to_hear_;  // those that may have sent something
  ConnectionId last_id_ = 0;
  bool some_are_ending_ = false;
  bool has_heard_ = true;  // from a client since the last poll
  int quiet_polls_ = 0;
};

}  // namespace cuvmm::daemon
