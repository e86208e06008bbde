// SPDX-License-Identifier: Apache-2.0
#include "observe/web_server.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/clock.hpp"
#include "base/log_rarely.hpp"
#include "share/system_error.hpp"

namespace cuvmm::observe {
namespace {

constexpr std::size_t most_connections = 64;
constexpr std::size_t most_streams = 32;
constexpr std::uint64_t second_us = 1'000'000;
constexpr std::uint64_t to_ask_us = 10 * second_us;
constexpr std::uint64_t to_read_us = 30 * second_us;
// How long a process that does not answer, such as a stopped one, delays an answer.
constexpr std::uint64_t for_figures_us = 100'000;
constexpr std::uint64_t look_every_us = 5'000;
constexpr std::uint64_t least_interval_us = 20'000;

// Headers of every answer: forbid loading from elsewhere, framing by other sites, and caching.
constexpr const char* safety =
    "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'\r\n"
    "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
    "Cross-Origin-Resource-Policy: same-origin\r\nCache-Control: no-store\r\n";

// Any site open in a local browser could point a name of its own at this address (DNS rebinding).
// Browsers always send a host, so a request without one is not a browser's.
bool is_for_loopback(const HttpRequest& request, const WebAddress& address) {
  return !request.host || is_loopback_name(*request.host) || *request.host == address.host_in_url();
}

}  // namespace

Result<std::unique_ptr<WebServer>> WebServer::open(WebSettings settings, WebSource& source,
                                                   std::vector<WebListener> listeners) {
  constexpr const char* doing = "serve the live view and the metrics";
  for (const WebListener& one : listeners) {
    if (!one.address().is_loopback && settings.token.empty()) {
      return Error::invalid(doing, "an address beyond loopback needs a token");
    }
  }
  auto server =
      std::unique_ptr<WebServer>{new WebServer{std::move(settings), source, std::move(listeners)}};
  server->epoll_ = TRY(share::opened_fd(::epoll_create1(EPOLL_CLOEXEC), doing));
  server->timer_ =
      TRY(share::opened_fd(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK), doing));
  bool watches_all = server->watch(server->timer_.number(), nullptr);
  for (const WebListener& one : server->listeners_) {
    watches_all = watches_all && server->watch(one.descriptor(), const_cast<WebListener*>(&one));
  }
  if (!watches_all) return share::system_error(doing);
  return server;
}

bool WebServer::watch(int descriptor, void* what) const {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP;
  event.data.ptr = what;
  return ::epoll_ctl(epoll_.number(), EPOLL_CTL_ADD, descriptor, &event) == 0;
}

void WebServer::handle() {
  std::array<epoll_event, 64> events{};
  const int count = ::epoll_wait(epoll_.number(), events.data(), events.size(), 0);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    const auto listener =
        std::find_if(listeners_.begin(), listeners_.end(),
                     [&](const WebListener& one) { return &one == event.data.ptr; });
    if (listener != listeners_.end()) {
      accept(*listener);
    } else if (event.data.ptr != nullptr) {
      Connection& connection = *static_cast<Connection*>(event.data.ptr);
      if ((event.events & EPOLLOUT) != 0) write(connection);
      if ((event.events & ~std::uint32_t{EPOLLOUT}) != 0) read(connection);
    }
  }
  tick();
  close_finished_connections();
  set_timer();
}

void WebServer::accept(const WebListener& listener) {
  // Further connections stay in the socket's queue until others have been served.
  for (int i = 0; i < 16; ++i) {
    Fd socket{::accept4(listener.descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
    if (!socket.is_open()) {
      if (errno != EMFILE && errno != ENFILE) return;
      CUVMM_LOG_RARELY(Warning, "no descriptors are left for the live view");
      if (make_room() || !spare_.turn_away(listener.descriptor())) return;
      continue;
    }
    const auto is_live = [](const Connection& one) { return !one.is_over; };
    const auto live = std::count_if(connections_.begin(), connections_.end(), is_live);
    if (static_cast<std::size_t>(live) >= most_connections) {
      CUVMM_LOG_RARELY(Warning, "the live view has %td connections; the slowest is closed", live);
      make_room();
    }
    Connection& connection = connections_.emplace_back();
    connection.listener = &listener;
    connection.user = listener.user_of(socket);
    connection.socket = std::move(socket);
    connection.until_us = now_us() + to_ask_us;
    if (!watch(connection.socket.number(), &connection)) connection.is_over = true;
  }
}

// Closes the slowest connection, preferably one without a complete request. False if there is none.
bool WebServer::make_room() {
  const auto slowest = std::min_element(connections_.begin(), connections_.end(),
                                        [](const Connection& a, const Connection& b) {
                                          if (a.is_over != b.is_over) return b.is_over;
                                          if (a.stage != b.stage) return a.stage < b.stage;
                                          return a.until_us < b.until_us;
                                        });
  if (slowest == connections_.end() || slowest->is_over) return false;
  slowest->is_over = true;
  // Its entry stays in the list until all present events have been handled.
  slowest->socket.close();
  return true;
}

// A client that has sent its request may shut down its side. A stream's client has gone then: it
// would hold one of the few streams until a write fails.
bool WebServer::awaits_answer(const Connection& connection) {
  return connection.stage == Stage::Waiting ||
         (connection.stage == Stage::Writing && !connection.unsent.empty());
}

void WebServer::read(Connection& connection) {
  if (connection.is_over) return;
  std::array<char, 4096> data{};
  const ssize_t got = ::recv(connection.socket.number(), data.data(), data.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got == 0 && !connection.has_said_all && awaits_answer(connection)) {
    connection.has_said_all = true;
    return renew_watch(connection);
  }
  if (got <= 0) {
    connection.is_over = true;
    return;
  }
  if (connection.stage != Stage::Reading) return;  // a connection gets only one request
  connection.read.append(data.data(), static_cast<std::size_t>(got));
  HttpParse parse = parse_request(connection.read);
  if (parse.state == HttpParse::State::Incomplete) return;
  connection.read.clear();
  if (parse.state == HttpParse::State::Bad) {
    return complain(connection, "400 Bad Request", "This is not an HTTP request.");
  }
  connection.request = std::move(parse.request);
  answer(connection);
}

void WebServer::answer(Connection& connection) {
  const HttpRequest& request = connection.request;
  const WebAddress& address = connection.listener->address();
  if (address.path.empty() && address.is_loopback && !is_for_loopback(request, address)) {
    return complain(connection, "421 Misdirected Request",
                    "The host has to be localhost, 127.0.0.1, [::1] or the address served.");
  }
  if (request.method != "GET" && request.method != "HEAD") {
    return complain(connection, "405 Method Not Allowed", "Only GET and HEAD.",
                    "Allow: GET, HEAD\r\n");
  }
  if (request.path == "/") {  // contains nothing about any client
    return respond(connection, "200 OK", "text/html; charset=utf-8", std::string{web_document});
  }
  const bool is_stream = request.path == "/events";
  const bool is_known = is_stream || request.path == "/metrics" || request.path == "/state" ||
                        request.path == "/client";
  if (!is_known) {
    return complain(connection, "404 Not Found",
                    "There are /, /metrics, /state, /client?label=LABEL and /events.");
  }
  const auto viewer = admit(connection);
  if (!viewer) return;
  connection.viewer = *viewer;
  if (!is_stream) return wait_for_figures(connection, Stage::Waiting);
  const auto streams =
      std::count_if(connections_.begin(), connections_.end(),
                    [](const Connection& one) { return one.stage == Stage::Streaming; });
  if (static_cast<std::size_t>(streams) >= most_streams) {
    return complain(connection, "503 Service Unavailable", "Too many look already.");
  }
  connection.unsent = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";
  connection.unsent += safety;
  connection.unsent += "Connection: close\r\n\r\nretry: 2000\n\n";
  if (request.is_head()) {
    connection.stage = Stage::Writing;
    return write(connection);
  }
  write(connection);
  wait_for_figures(connection, Stage::Streaming);
}

std::optional<WebViewer> WebServer::admit(Connection& connection) {
  const auto refuse = [&](const std::string& text) {
    complain(connection, "401 Unauthorized", text, "WWW-Authenticate: Bearer\r\n");
    return std::optional<WebViewer>{};
  };
  const std::string& token = connection.request.token;
  if (!token.empty()) {
    const bool is_right = !settings_.token.empty() && is_same_secret(token, settings_.token);
    return is_right ? std::optional{WebViewer{.sees_all = true}} : refuse("The token is wrong.");
  }
  if (connection.user) {
    if (const auto viewer = source_.viewer_of(*connection.user)) return viewer;
  }
  return refuse(settings_.token.empty()
                    ? "This service is another user's, and has no token."
                    : "A token is needed: the header Authorization: Bearer TOKEN, or /#TOKEN.");
}

void WebServer::respond(Connection& connection, const char* status, const char* type,
                        const std::string& body, const char* more) {
  connection.unsent = std::string{"HTTP/1.1 "} + status + "\r\nContent-Type: " + type +
                      "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" + safety +
                      more + "Connection: close\r\n\r\n";
  if (!connection.request.is_head()) connection.unsent += body;
  connection.stage = Stage::Writing;
  connection.until_us = now_us() + to_read_us;
  write(connection);
}

void WebServer::complain(Connection& connection, const char* status, const std::string& text,
                         const char* more) {
  respond(connection, status, "text/plain; charset=utf-8", text + "\n", more);
}

void WebServer::wait_for_figures(Connection& connection, Stage stage) {
  connection.stage = stage;
  connection.until_us = now_us() + to_read_us;
  if (stage == Stage::Streaming) next_event_us_ = now_us();
  if (stage == Stage::Waiting) wants_figures_ = true;
}

// Limits how often processes are asked, however many requests arrive. Figures requested before a
// request arrived would be too old for it.
void WebServer::refresh(std::uint64_t now) {
  if (refreshing_since_us_ != 0 || now < refreshed_us_ + least_interval_us) return;
  const bool events_are_due =
      now >= next_event_us_ &&
      std::any_of(connections_.begin(), connections_.end(),
                  [](const Connection& one) { return one.stage == Stage::Streaming; });
  if (!wants_figures_ && !events_are_due) return;
  for (Connection& one : connections_) one.is_due = one.stage == Stage::Waiting;
  wants_figures_ = false;
  source_.refresh();
  refreshed_us_ = refreshing_since_us_ = now;
}

// Renders the text once for all viewers with the same rights.
void WebServer::deliver() {
  const std::uint64_t now = now_us();
  const bool streams_are_due = now >= next_event_us_;
  std::map<WebViewer, std::string> states;
  const auto state_for = [&](const WebViewer& viewer) -> const std::string& {
    std::string& state = states[viewer];
    if (state.empty()) state = source_.state(viewer);
    return state;
  };
  std::map<std::pair<WebViewer, MetricFormat>, std::string> all_metrics;
  const auto metrics_for = [&](const WebViewer& viewer, MetricFormat format) -> const std::string& {
    std::string& metrics = all_metrics[{viewer, format}];
    if (metrics.empty()) metrics = source_.metrics(viewer, format);
    return metrics;
  };
  for (Connection& one : connections_) {
    if (one.is_over) continue;
    if (one.stage == Stage::Streaming && streams_are_due) {
      send_event(one, state_for(one.viewer));
    } else if (one.stage == Stage::Waiting && !one.is_due) {
      wants_figures_ = true;
    } else if (one.stage == Stage::Waiting && one.request.path == "/state") {
      respond(one, "200 OK", "application/json", state_for(one.viewer) + "\n");
    } else if (one.stage == Stage::Waiting && one.request.path == "/client") {
      const std::string client = source_.client(one.viewer, one.request.label);
      if (client.empty()) {
        complain(one, "404 Not Found", "There is no client of that label.");
      } else {
        respond(one, "200 OK", "application/json", client + "\n");
      }
    } else if (one.stage == Stage::Waiting) {
      const MetricFormat format = format_for(one.request.accept);
      respond(one, "200 OK", content_type(format), metrics_for(one.viewer, format));
    }
  }
  if (streams_are_due) next_event_us_ = now + settings_.interval_us;
}

void WebServer::send_event(Connection& connection, const std::string& state) {
  if (!connection.unsent.empty()) return;  // a slow reader skips this state
  connection.unsent = "data: " + state + "\n\n";
  connection.until_us = now_us() + to_read_us;
  write(connection);
}

void WebServer::write(Connection& connection) {
  while (!connection.is_over && !connection.unsent.empty()) {
    const ssize_t sent = ::send(connection.socket.number(), connection.unsent.data(),
                                connection.unsent.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == ENOBUFS)) break;
    if (sent < 0) {
      connection.is_over = true;
      return;
    }
    connection.unsent.erase(0, static_cast<std::size_t>(sent));
  }
  if (connection.unsent.empty() && connection.stage == Stage::Writing) {
    // Closing now, with unread input, could make the kernel discard the answer.
    ::shutdown(connection.socket.number(), SHUT_WR);
    connection.until_us = now_us() + second_us;
  }
  const bool wants_room = !connection.unsent.empty();
  if (connection.wants_room == wants_room) return;
  connection.wants_room = wants_room;
  renew_watch(connection);
}

// The end of the input would be reported again and again.
void WebServer::renew_watch(Connection& connection) const {
  epoll_event event{};
  if (!connection.has_said_all) event.events |= EPOLLIN | EPOLLRDHUP;
  if (connection.wants_room) event.events |= EPOLLOUT;
  event.data.ptr = &connection;
  ::epoll_ctl(epoll_.number(), EPOLL_CTL_MOD, connection.socket.number(), &event);
}

void WebServer::tick() {
  std::uint64_t ticks = 0;
  while (::read(timer_.number(), &ticks, sizeof ticks) > 0) {
  }
  const std::uint64_t now = now_us();
  for (Connection& one : connections_) {
    const bool is_quiet_stream = one.stage == Stage::Streaming && one.unsent.empty();
    if (now >= one.until_us && !is_quiet_stream) one.is_over = true;
  }
  refresh(now);
  const bool is_due = refreshing_since_us_ != 0 &&
                      (source_.is_fresh() || now - refreshing_since_us_ >= for_figures_us);
  if (!is_due) return;
  refreshing_since_us_ = 0;
  deliver();
}

// The timer runs only while a client is connected.
void WebServer::set_timer() const {
  std::uint64_t next = UINT64_MAX;
  const std::uint64_t now = now_us();
  if (refreshing_since_us_ != 0) next = now + look_every_us;
  if (refreshing_since_us_ == 0 && wants_figures_) next = refreshed_us_ + least_interval_us;
  for (const Connection& one : connections_) {
    const bool is_quiet_stream = one.stage == Stage::Streaming && one.unsent.empty();
    const std::uint64_t next_event = std::max(next_event_us_, refreshed_us_ + least_interval_us);
    next = std::min(next, is_quiet_stream ? next_event : one.until_us);
  }
  itimerspec when{};
  if (next != UINT64_MAX) {
    next = std::max(next, now + 1);
    when.it_value = {static_cast<time_t>(next / second_us),
                     static_cast<long>(next % second_us * 1000)};
  }
  ::timerfd_settime(timer_.number(), TFD_TIMER_ABSTIME, &when, nullptr);
}

void WebServer::close_finished_connections() {
  std::erase_if(connections_, [](const Connection& one) { return one.is_over; });
}

}  // namespace cuvmm::observe
