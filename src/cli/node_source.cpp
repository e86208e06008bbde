// SPDX-License-Identifier: Apache-2.0
#include "cli/node_source.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "node/service_socket.hpp"
#include "observe/http_request.hpp"
#include "observe/node_metrics.hpp"
#include "observe/snapshot_json.hpp"
#include "share/runtime_socket.hpp"

namespace cuvmm::cli {
namespace {

constexpr Duration service_patience{2'000'000};
constexpr std::size_t longest_answer = std::size_t{64} << 20;

std::vector<std::string> web_sockets() {
  const char* const named = std::getenv("VMM_NODE_SOCKET");
  std::vector<std::string> sockets = named != nullptr && *named != '\0'
                                         ? std::vector<std::string>{named}
                                         : node::usual_service_sockets();
  for (std::string& one : sockets) one = node::web_socket_beside(one);
  return sockets;
}

// Whether a body is as long as the head says: a service that ends may leave out the rest.
bool is_whole(std::string_view head, std::string_view body) {
  constexpr std::string_view field = "\r\nContent-Length: ";
  const std::size_t at = head.find(field);
  if (at == std::string_view::npos) return false;
  const std::string_view digits = head.substr(at + field.size());
  std::size_t length = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), length);
  return read.ec == std::errc{} && body.size() == length;
}

// The body of the service's answer; empty if there is none.
std::string get(const std::string& socket_path, const std::string& path, const char* accept) {
  const auto until = share::Deadline::after(service_patience);
  const auto connected = share::connect_to(socket_path, until, share::SocketType::Stream);
  if (!connected.ok()) return "";
  const Fd& socket = *connected;
  const std::string request = "GET " + path + " HTTP/1.1\r\nHost: localhost\r\nAccept: " + accept +
                              "\r\nConnection: close\r\n\r\n";
  if (::send(socket.number(), request.data(), request.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(request.size())) {
    return "";
  }
  std::string answer;
  while (answer.size() < longest_answer) {
    pollfd seen{.fd = socket.number(), .events = POLLIN, .revents = 0};
    if (::poll(&seen, 1, until.milliseconds_left()) <= 0) return "";
    std::array<char, 1 << 16> data{};
    const ssize_t got = ::recv(socket.number(), data.data(), data.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) break;
    answer.append(data.data(), static_cast<std::size_t>(got));
  }
  const std::size_t end = answer.find("\r\n\r\n");
  if (!answer.starts_with("HTTP/1.1 200 ") || end == std::string::npos) return "";
  std::string body = answer.substr(end + 4);
  return is_whole(std::string_view{answer}.substr(0, end), body) ? body : "";
}

// Passes on what the service shows to this user.
class ServiceSource final : public NodeSource {
 public:
  explicit ServiceSource(std::string socket) : socket_(std::move(socket)) {}
  void refresh() override {}
  bool is_fresh() override { return true; }
  std::string metrics(const observe::WebViewer&, observe::MetricFormat format) override {
    return get(socket_, "/metrics", observe::content_type(format));
  }
  std::string state(const observe::WebViewer&) override {
    std::string state = get(socket_, "/state", "*/*");
    while (!state.empty() && state.back() == '\n') state.pop_back();
    return state.empty() ? R"({"schema":1,"problem":"cuvmmd does not answer"})" : state;
  }
  std::string client(const observe::WebViewer&, const std::string& label) override {
    std::string client = get(socket_, "/client?label=" + observe::percent_encoded(label), "*/*");
    while (!client.empty() && client.back() == '\n') client.pop_back();
    return client;
  }

 private:
  const std::string socket_;
};

class ProcessSource final : public NodeSource {
 public:
  explicit ProcessSource(observe::ShowsArguments arguments) : arguments_(arguments) {}
  void refresh() override { processes_.ask(); }
  bool is_fresh() override { return processes_.look(); }
  std::string metrics(const observe::WebViewer&, observe::MetricFormat format) override {
    return print_metrics(snapshot(), format);
  }
  std::string state(const observe::WebViewer&) override { return print_json(snapshot()); }
  std::string client(const observe::WebViewer&, const std::string& label) override {
    return print_client_json(snapshot(), label);
  }

 private:
  observe::Snapshot snapshot() const {
    observe::Snapshot all;
    processes_.add_to(all, arguments_);
    return all;
  }

  const observe::ShowsArguments arguments_;
  observe::PublishedProcesses processes_;
};

}  // namespace

std::optional<observe::WebViewer> NodeSource::viewer_of(uid_t user) const {
  if (user != 0 && user != ::geteuid()) return {};
  return observe::WebViewer{.sees_all = true};
}

std::unique_ptr<NodeSource> source_here(observe::ShowsArguments arguments) {
  for (const std::string& path : web_sockets()) {
    const auto until = share::Deadline::after(service_patience);
    const auto service = share::connect_to(path, until, share::SocketType::Stream);
    if (service.ok()) return std::make_unique<ServiceSource>(path);
  }
  return std::make_unique<ProcessSource>(arguments);
}

void wait_for_figures(observe::WebSource& source) {
  constexpr Duration patience{200'000};
  const auto until = share::Deadline::after(patience);
  source.refresh();
  while (!source.is_fresh() && !until.is_over()) ::poll(nullptr, 0, 1);
}

}  // namespace cuvmm::cli
