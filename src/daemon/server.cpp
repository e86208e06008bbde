// SPDX-License-Identifier: Apache-2.0
#include "daemon/server.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/clock.hpp"
#include "base/kept_text.hpp"
#include "base/log_rarely.hpp"
#include "share/packet.hpp"

namespace cuvmm::daemon {
namespace {

constexpr const char* serving_node = "serve the node";
constexpr std::size_t most_connections = 1024;
constexpr std::size_t most_of_one_user = most_connections / 4;  // but not of root
constexpr node::Microseconds longest_unspoken = 5'000'000;
constexpr std::size_t most_unsent = 1024;  // packets to a client that does not read
// The rate and burst limit for messages from one client. Handling a message takes longer the more
// it lists, so a long one counts as several.
constexpr double messages_per_second = 20'000;
constexpr std::size_t long_message = 64;
constexpr int most_at_a_time = 64;  // messages from one client before others are served
constexpr node::Microseconds longest_of_a_user = 2'000;  // of handling its messages before others'
constexpr std::size_t most_events_of_a_round = most_connections + 16;
constexpr int most_admitted_at_a_time = 16;  // connections before clients are served
constexpr long poll_every_ns = 250'000'000;  // NVML
constexpr int quiet_polls = 4;               // while clients are silent, only every fourth is made

constexpr std::uint64_t id_bits = 56;

Result<Fd> new_timer() {
  return share::opened_fd(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK),
                          serving_node);
}

Result<share::ListeningSocket> listen_to_clients(const ServerSettings& settings) {
  using share::ListeningSocket;
  const mode_t mode = settings.serves == Serves::AllUsers ? 0666 : 0600;
  auto socket = ListeningSocket::open(settings.socket,
                                      {.replace = ListeningSocket::Replace::Stale, .mode = mode});
  if (!socket.ok()) return error_at(settings.socket, socket.error());
  return socket;
}

void drain(const Fd& timer) {
  std::uint64_t ticks = 0;
  while (::read(timer.number(), &ticks, sizeof ticks) > 0) {
  }
}

}  // namespace

Result<std::unique_ptr<Server>> Server::open(const ServerSettings& settings,
                                             std::vector<observe::NodeDevice> devices,
                                             observe::Nvml nvml) {
  auto server = std::unique_ptr<Server>{new Server{settings}};
  if (settings.inherited) {
    server->inherited_socket_ = Fd{*settings.inherited};
    ::fcntl(*settings.inherited, F_SETFD, FD_CLOEXEC);
    ::fcntl(*settings.inherited, F_SETFL, O_NONBLOCK);
    server->listening_ = *settings.inherited;
  } else {
    server->own_socket_ = TRY(listen_to_clients(settings));
    server->listening_ = server->own_socket_->socket().number();
  }
  sigset_t handled;
  ::sigemptyset(&handled);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) ::sigaddset(&handled, signal);
  ::sigprocmask(SIG_BLOCK, &handled, nullptr);
  server->signals_ =
      TRY(share::opened_fd(::signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK), serving_node));
  server->epoll_ = TRY(share::opened_fd(::epoll_create1(EPOLL_CLOEXEC), serving_node));
  server->timer_ = TRY(new_timer());
  server->poll_timer_ = TRY(new_timer());
  TRY(server->watch(server->listening_, EPOLLIN, Source::Listening, 0));
  TRY(server->watch(server->signals_.number(), EPOLLIN, Source::Signals, 0));
  TRY(server->watch(server->timer_.number(), EPOLLIN, Source::Timer, 0));
  TRY(server->watch(server->poll_timer_.number(), EPOLLIN, Source::Poll, 0));
  const itimerspec often{{0, poll_every_ns}, {0, poll_every_ns}};
  ::timerfd_settime(server->poll_timer_.number(), 0, &often, nullptr);

  Server* const self = server.get();
  self->use_poll_ = TRY(UsePoll::begin(std::move(nvml), devices));
  TRY(self->watch(self->use_poll_->descriptor(), EPOLLIN, Source::Use, 0));
  BrokerSettings of_broker{.serves = settings.serves, .user = ::geteuid()};
  of_broker.devices = std::move(devices);
  // A pause moves memory. Expect at least this rate, including the time to pin memory.
  of_broker.times.reclaim_within = 1'000'000;
  of_broker.times.guarantee_within = 2'000'000;
  of_broker.times.moved_per_second = GiB;
  self->broker_ = std::make_unique<Broker>(
      std::move(of_broker),
      [self](ConnectionId id, std::vector<Broker::Packet> packets) {
        self->send(id, std::move(packets));
      },
      [self](ConnectionId id) {
        self->connections_[id].is_ending = true;
        self->some_are_ending_ = true;
      },
      [self](ConnectionId id, Broker::Packet packet, int descriptor) {
        self->send_with(id, std::move(packet), Fd{::fcntl(descriptor, F_DUPFD_CLOEXEC, 0)});
      });
  if (const auto problem = self->broker_->configure(settings.read, now_us())) {
    CUVMM_LOG(Error, "%s", problem->c_str());
    return Error::invalid(serving_node, "its configuration cannot be satisfied");
  }
  server->deep_pauses_ = TRY(DeepPauses::open(
      {.say = [self](node::ClientId client,
                     const auto& demand) { self->broker_->demand_presence(client, demand); },
       .ended =
           [self](node::ClientId client, DeepPauseWay way, const HelperReport& report) {
             self->broker_->deep_pause_ended(client, way, report, now_us());
           }}));
  TRY(server->watch(server->deep_pauses_->descriptor(), EPOLLIN, Source::DeepPauses, 0));
  server->broker_->leave_devices_with(*server->deep_pauses_);
  server->web_ = TRY(Web::open(settings.web, settings.serves, *server->broker_));
  TRY(server->watch(server->web_->descriptor(), EPOLLIN, Source::Web, 0));
  return server;
}

Result<void> Server::watch(int descriptor, std::uint32_t events, Source source,
                           std::uint64_t id) const {
  epoll_event event{};
  event.events = events;
  event.data.u64 = static_cast<std::uint64_t>(source) << id_bits | id;
  if (::epoll_ctl(epoll_.number(), EPOLL_CTL_ADD, descriptor, &event) == 0) return {};
  return share::system_error(serving_node);
}

void Server::set_timer() const {
  itimerspec when{};
  if (const auto next = broker_->next_wake()) {
    const std::uint64_t at = std::max<std::uint64_t>(*next, 1);
    when.it_value = {static_cast<time_t>(at / 1'000'000), static_cast<long>(at % 1'000'000 * 1000)};
  }
  ::timerfd_settime(timer_.number(), TFD_TIMER_ABSTIME, &when, nullptr);
}

Result<void> Server::run() {
  std::array<epoll_event, most_events_of_a_round> events{};
  saw(use_poll_->look());
  for (;;) {
    set_timer();
    const int count =
        ::epoll_wait(epoll_.number(), events.data(), events.size(), to_hear_.empty() ? -1 : 0);
    if (count < 0 && errno != EINTR) return share::system_error(serving_node);
    bool has_callers = false;
    bool has_viewers = false;
    for (int i = 0; i < count; ++i) {
      const std::uint64_t word = events[static_cast<std::size_t>(i)].data.u64;
      const std::uint64_t id = word & ((std::uint64_t{1} << id_bits) - 1);
      switch (static_cast<Source>(word >> id_bits)) {
        case Source::Listening:
          has_callers = true;
          break;
        case Source::Timer:
          drain(timer_);
          broker_->time_passed(now_us());
          break;
        case Source::Poll:
          drain(poll_timer_);
          // NVML queries are nearly all of the work of an idle service.
          end_unspoken_connections();
          quiet_polls_ = std::exchange(has_heard_, false) ? 0 : quiet_polls_ + 1;
          if (quiet_polls_ % quiet_polls == 0) ask_for_use();
          break;
        case Source::Use:
          saw(use_poll_->take_answer());
          break;
        case Source::Signals:
          if (!handle_signal()) return {};
          break;
        case Source::Connection: {
          const auto found = connections_.find(id);
          if (found == connections_.end() || found->second.is_ending) break;
          flush(id, found->second);
          if (!std::exchange(found->second.is_to_be_heard, true)) to_hear_.push_back(id);
          break;
        }
        case Source::Web:
          has_viewers = true;
          break;
        case Source::DeepPauses:
          deep_pauses_->handle();
          break;
        case Source::Process:
          if (connections_.contains(id)) {
            connections_[id].is_ending = some_are_ending_ = true;
          }
          break;
      }
    }
    hear_clients();
    // Connections that have ended no longer count against the limits for new ones.
    close_ending_connections();
    if (has_callers) let_in();
    if (has_viewers) web_->handle();  // which shows none that has ended
  }
}

bool Server::handle_signal() {
  signalfd_siginfo info{};
  while (::read(signals_.number(), &info, sizeof info) == sizeof info) {
    if (info.ssi_signo != SIGHUP) return false;
    reload();
  }
  return true;
}

void Server::reload() {
  if (settings_.config.empty()) {
    CUVMM_LOG(Warning, "SIGHUP: no configuration file to reload");
    return;
  }
  ConfigRead read = read_config(settings_.config, settings_.serves);
  std::optional<std::string> problem;
  if (!read.ok()) problem = read.problem;
  for (const auto& [name, bytes] : settings_.capacity) read.config.capacity[name] = bytes;
  if (settings_.time) read.config.time.rule = *settings_.time;
  if (settings_.deep_pause) read.config.deep_pause = *settings_.deep_pause;
  if (!problem) problem = broker_->configure(read.config, now_us());
  if (problem) {
    CUVMM_LOG(Error, "%s; the previous configuration stays in effect", problem->c_str());
  } else {
    CUVMM_LOG(Info, "%s reloaded", settings_.config.c_str());
  }
}

void Server::ask_for_use() {
  if (use_poll_->ask()) broker_->will_see_use();
}

void Server::saw(const std::vector<UsePoll::Seen>& seen) {
  for (const auto& [device, use] : seen) broker_->saw_use(device, use, now_us());
}

// Further connections stay in the socket's queue until others have been served: a client that keeps
// connecting must not keep the service from everything else.
void Server::let_in() {
  for (int i = 0; i < most_admitted_at_a_time; ++i) {
    Fd socket{::accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
    if (!socket.is_open()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno != EMFILE && errno != ENFILE) return;
      CUVMM_LOG_RARELY(Warning, "no descriptors are left; clients are turned away");
      if (!spare_.turn_away(listening_)) return;
      continue;
    }
    if (connections_.size() >= most_connections) continue;
    auto peer = identify(socket);
    if (!peer.ok()) continue;
    const bool is_stranger =
        settings_.serves == Serves::OneUser && peer->user != ::geteuid() && peer->user != 0;
    if (is_stranger || has_too_many_connections(peer->user)) continue;
    const ConnectionId id = ++last_id_;
    Connection connection{.user = peer->user,
                          .since = now_us(),
                          .tokens = messages_per_second,
                          .tokens_at = now_us()};
    connection.pidfd = peer->pidfd.number();
    connection.socket = std::move(socket);
    if (!watch(connection.socket.number(), EPOLLIN | EPOLLRDHUP, Source::Connection, id).ok()) {
      continue;
    }
    // The socket may outlive the process in a forked child.
    if (connection.pidfd >= 0) {
      static_cast<void>(watch(connection.pidfd, EPOLLIN, Source::Process, id).ok());
    }
    broker_->connected(id, std::move(*peer), now_us());
    connections_.emplace(id, std::move(connection));
  }
}

// Otherwise one user could keep all others out.
bool Server::has_too_many_connections(uid_t user) const {
  if (settings_.serves == Serves::OneUser || user == 0) return false;
  const auto count = std::count_if(connections_.begin(), connections_.end(),
                                   [&](const auto& one) { return one.second.user == user; });
  if (static_cast<std::size_t>(count) < most_of_one_user) return false;
  CUVMM_LOG_RARELY(Warning, "user %u has %zu connections; no more are accepted", user,
                   most_of_one_user);
  return true;
}

// Clients and observers speak first.
void Server::end_unspoken_connections() {
  const node::Microseconds now = now_us();
  for (auto& [id, connection] : connections_) {
    if (connection.has_spoken || now - connection.since < longest_unspoken) continue;
    connection.is_ending = some_are_ending_ = true;
  }
}

bool Server::may_say(Connection& connection, std::size_t bytes) const {
  const node::Microseconds now = now_us();
  const double gained = static_cast<double>(now - connection.tokens_at) * messages_per_second / 1e6;
  connection.tokens = std::min(connection.tokens + gained, messages_per_second);
  connection.tokens_at = now;
  const std::size_t messages = 1 + bytes / long_message;
  const auto price = static_cast<double>(messages);
  if (connection.tokens < price) return false;
  connection.tokens -= price;
  return true;
}

// A message may take long to handle if many requests wait, so users take turns: however much the
// clients of one user say, others are heard within one round. Connections that are not heard in a
// round are the first of their user in the next.
void Server::hear_clients() {
  std::map<uid_t, node::Microseconds> spent;
  for (std::size_t left = to_hear_.size(); left != 0; --left) {
    const ConnectionId id = to_hear_.front();
    to_hear_.pop_front();
    const auto found = connections_.find(id);
    if (found == connections_.end()) continue;
    node::Microseconds& of_user = spent[found->second.user];
    if (of_user >= longest_of_a_user) {
      to_hear_.push_back(id);
      continue;
    }
    found->second.is_to_be_heard = false;
    const node::Microseconds began = now_us();
    receive(id, began + longest_of_a_user - of_user);
    of_user += now_us() - began;
  }
}

// Reads at least one message, and none after `until`.
void Server::receive(ConnectionId id, node::Microseconds until) {
  Connection& connection = connections_[id];
  std::array<std::byte, node::longest_message + 1> packet{};
  for (int i = 0; i < most_at_a_time && !connection.is_ending; ++i) {
    if (i != 0 && now_us() >= until) return;
    has_heard_ = true;
    const ssize_t got = ::recv(connection.socket.number(), packet.data(), packet.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    const bool is_heard =
        got > 0 && may_say(connection, static_cast<std::size_t>(got)) &&
        broker_->said(id, std::span{packet}.first(static_cast<std::size_t>(got)), now_us());
    connection.has_spoken |= is_heard;
    if (is_heard) continue;
    if (got > 0) {
      CUVMM_LOG_RARELY(Warning,
                       "a client sent an invalid message, or too many: its connection is closed");
    }
    connection.is_ending = some_are_ending_ = true;
  }
}

// Null if the client has gone, or does not read.
Server::Connection* Server::reader(ConnectionId id) {
  const auto found = connections_.find(id);
  if (found == connections_.end() || found->second.is_ending) return nullptr;
  Connection& connection = found->second;
  if (connection.unsent.size() < most_unsent) return &connection;
  CUVMM_LOG_RARELY(Warning, "a client does not read; its connection ends");
  connection.is_ending = some_are_ending_ = true;
  return nullptr;
}

void Server::send(ConnectionId id, std::vector<Broker::Packet> packets) {
  Connection* const connection = reader(id);
  if (connection == nullptr) return;
  for (Broker::Packet& packet : packets) connection->unsent.push_back({std::move(packet), {}});
  flush(id, *connection);
}

void Server::send_with(ConnectionId id, Broker::Packet packet, Fd descriptor) {
  Connection* const connection = reader(id);
  if (connection == nullptr) return;
  if (!descriptor.is_open()) {
    CUVMM_LOG_RARELY(Warning, "no descriptor is left for a client; its connection ends");
    connection->is_ending = some_are_ending_ = true;
    return;
  }
  connection->unsent.push_back({std::move(packet), std::move(descriptor)});
  flush(id, *connection);
}

void Server::flush(ConnectionId id, Connection& connection) {
  while (!connection.unsent.empty()) {
    const Connection::Unsent& next = connection.unsent.front();
    const int number = next.descriptor.number();
    const std::span descriptors{&number, next.descriptor.is_open() ? std::size_t{1} : 0};
    const ssize_t sent = share::send_bytes(connection.socket.number(), next.packet, descriptors, 0);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == ENOBUFS)) break;
    if (sent < 0) {
      connection.is_ending = some_are_ending_ = true;
      return;
    }
    connection.unsent.pop_front();
  }
  want_room(id, connection, !connection.unsent.empty());
}

void Server::want_room(ConnectionId id, Connection& connection, bool wanted) const {
  if (connection.wants_room == wanted) return;
  connection.wants_room = wanted;
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP | (wanted ? std::uint32_t{EPOLLOUT} : 0U);
  event.data.u64 = static_cast<std::uint64_t>(Source::Connection) << id_bits | id;
  ::epoll_ctl(epoll_.number(), EPOLL_CTL_MOD, connection.socket.number(), &event);
}

// Memory that a client leaves behind may settle other requests, and thereby end further
// connections.
void Server::close_ending_connections() {
  while (some_are_ending_) {
    some_are_ending_ = false;
    for (auto next = connections_.begin(); next != connections_.end();) {
      if (!next->second.is_ending) {
        ++next;
        continue;
      }
      const ConnectionId id = next->first;
      next = connections_.erase(next);  // the broker's record still owns its pidfd
      broker_->gone(id, now_us());
    }
  }
}

}  // namespace cuvmm::daemon
