// SPDX-License-Identifier: Apache-2.0
// The HTTP server with a source of its own: whom it answers, what it shares, and what it removes.
#include "observe/web_server.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace cuvmm::test {
namespace {

using observe::MetricFormat;
using observe::WebAddress;
using observe::WebListener;
using observe::WebServer;
using observe::WebViewer;
using share::ListeningSocket;

class CountingSource final : public observe::WebSource {
 public:
  void refresh() override {}
  bool is_fresh() override { return true; }
  std::optional<WebViewer> viewer_of(uid_t /*user*/) const override {
    return WebViewer{.sees_all = true};
  }
  std::string metrics(const WebViewer& /*viewer*/, MetricFormat /*format*/) override {
    return "rendered " + std::to_string(++rendered) + "\n";
  }
  std::string state(const WebViewer& /*viewer*/) override { return "{}"; }
  std::string client(const WebViewer& /*viewer*/, const std::string& /*label*/) override {
    return "";
  }

  int rendered = 0;
};

class WebServers : public ::testing::Test {
 public:
  WebServers() {
    folder_ = (std::filesystem::temp_directory_path() / "cuvmm-web-XXXXXX").string();
    if (::mkdtemp(folder_.data()) == nullptr) throw std::runtime_error("no folder for the test");
  }
  ~WebServers() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  void serve_at(const std::string& address) {
    auto listener = WebListener::open(*observe::read_web_address(address), 0600);
    ASSERT_TRUE(listener.ok()) << listener.error().text();
    std::vector<WebListener> listeners;
    listeners.push_back(std::move(*listener));
    auto server = WebServer::open({}, source, std::move(listeners));
    ASSERT_TRUE(server.ok()) << server.error().text();
    server_ = std::move(*server);
  }

  // Sends the request on as many connections, and returns the answers.
  std::vector<std::string> answers_to(const std::string& request, int connections) {
    std::vector<Fd> sockets;
    for (int i = 0; i < connections; ++i) {
      sockets.push_back(connected());
      EXPECT_EQ(::send(sockets.back().number(), request.data(), request.size(), MSG_NOSIGNAL),
                static_cast<ssize_t>(request.size()));
    }
    std::vector<std::string> answers(sockets.size());
    for (std::size_t i = 0; i < sockets.size(); ++i) {
      while (receive_more(sockets[i], answers[i])) {
      }
    }
    return answers;
  }
  std::string answer_to(const std::string& request) { return answers_to(request, 1).front(); }
  std::string status_of(const std::string& request) {
    return answer_to(request).substr(std::string{"HTTP/1.1 "}.size(), 3);
  }

  CountingSource source;

 private:
  Fd connected() const {
    const WebAddress& address = server_->listeners().front().address();
    if (!address.path.empty()) {
      auto socket = share::connect_to(address.path, {}, share::SocketType::Stream);
      EXPECT_TRUE(socket.ok());
      return socket.ok() ? std::move(*socket) : Fd{};
    }
    Fd socket{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    sockaddr_in there{};
    there.sin_family = AF_INET;
    there.sin_port = htons(address.port);
    ::inet_pton(AF_INET, address.host.c_str(), &there.sin_addr);
    EXPECT_EQ(::connect(socket.number(), reinterpret_cast<sockaddr*>(&there), sizeof there), 0);
    return socket;
  }

  // False once the server has closed the connection.
  bool receive_more(const Fd& socket, std::string& answer) const {
    std::array<pollfd, 2> waits{{{socket.number(), POLLIN, 0}, {server_->descriptor(), POLLIN, 0}}};
    if (::poll(waits.data(), waits.size(), 20'000) <= 0) return false;
    if (waits[1].revents != 0) server_->handle();
    if (waits[0].revents == 0) return true;
    std::array<char, 4096> data{};
    const ssize_t got = ::recv(socket.number(), data.data(), data.size(), 0);
    if (got > 0) answer.append(data.data(), static_cast<std::size_t>(got));
    return got > 0;
  }

  std::string folder_;
  std::unique_ptr<WebServer> server_;
};

void write_file(const std::string& path, const std::string& text) {
  std::ofstream{path} << text;
}

std::string read_file(const std::string& path) {
  std::ifstream file{path};
  return {std::istreambuf_iterator<char>{file}, {}};
}

Error refusal_at(const std::string& path) {
  const auto listener = WebListener::open({.path = path}, 0600);
  EXPECT_FALSE(listener.ok()) << path;
  return listener.ok() ? Error{} : listener.error();
}

TEST_F(WebServers, RenderTheMetricsOnceForAllWhoWaitForThem) {
  serve_at(path("web"));
  constexpr int connections = 8;  // which the server accepts in one round
  const auto answers = answers_to("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", connections);
  for (const std::string& answer : answers) {
    EXPECT_TRUE(answer.ends_with("rendered 1\n")) << answer;
  }
  EXPECT_EQ(source.rendered, 1);
}

TEST_F(WebServers, AnswerToTheirOwnLoopbackAddressButNotToAnother) {
  serve_at("127.0.0.2:0");
  const auto status = [&](const std::string& host) {
    return status_of("GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
  };
  EXPECT_EQ(status("127.0.0.2:80"), "200");
  EXPECT_EQ(status("localhost"), "200");
  EXPECT_EQ(status("127.0.0.3"), "421");
  EXPECT_EQ(status("evil.example"), "421");
}

TEST_F(WebServers, CheckTheHostOfAnAbsoluteTargetAndOfHttp10) {
  serve_at("127.0.0.1:0");
  EXPECT_EQ(status_of("GET http://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n"), "200");
  EXPECT_EQ(status_of("GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n"), "421");
  EXPECT_EQ(status_of("GET / HTTP/1.0\r\n\r\n"), "200");
  EXPECT_EQ(status_of("GET / HTTP/1.0\r\nHost: evil.example\r\n\r\n"), "421");
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: \r\n\r\n"), "421");
}

TEST_F(WebServers, NeverReplaceAFileThatIsNotASocket) {
  write_file(path("a"), "precious");
  EXPECT_EQ(refusal_at(path("a")).kind, ErrorKind::AlreadyExists);
  EXPECT_EQ(read_file(path("a")), "precious");

  write_file(path("b.new"), "precious");
  EXPECT_EQ(refusal_at(path("b")).kind, ErrorKind::AlreadyExists);
  EXPECT_EQ(read_file(path("b.new")), "precious");
  EXPECT_FALSE(std::filesystem::exists(path("b")));
}

TEST_F(WebServers, NeverReplaceALivingSocket) {
  const auto first = WebListener::open({.path = path("a")}, 0600);
  ASSERT_TRUE(first.ok()) << first.error().text();
  EXPECT_EQ(refusal_at(path("a")).kind, ErrorKind::AlreadyExists);

  // Of a program that takes no lock, and of another type.
  const auto packets = ListeningSocket::open(path("b"), {});
  ASSERT_TRUE(packets.ok()) << packets.error().text();
  EXPECT_EQ(refusal_at(path("b")).kind, ErrorKind::AlreadyExists);
  const auto fresh = ListeningSocket::open(path("c.new"), {});
  ASSERT_TRUE(fresh.ok()) << fresh.error().text();
  EXPECT_EQ(refusal_at(path("c")).kind, ErrorKind::AlreadyExists);
  for (const char* const name : {"a", "b", "c.new"}) {
    EXPECT_TRUE(std::filesystem::is_socket(path(name))) << name;
  }
}

TEST_F(WebServers, ReplaceASocketAtWhichNobodyListens) {
  {
    auto dead = ListeningSocket::open(path("moved"), {.type = share::SocketType::Stream});
    ASSERT_TRUE(dead.ok()) << dead.error().text();
    std::filesystem::rename(path("moved"), path("a"));
  }
  ASSERT_TRUE(std::filesystem::is_socket(path("a")));
  serve_at(path("a"));
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"), "200");
}

TEST_F(WebServers, RemoveTheirSocketAndNoOtherFileThatHasItsName) {
  {
    const auto listener = WebListener::open({.path = path("a")}, 0640);
    ASSERT_TRUE(listener.ok()) << listener.error().text();
    struct stat facts {};
    ASSERT_EQ(::stat(path("a").c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 0777, 0640u);
  }
  EXPECT_FALSE(std::filesystem::exists(path("a")));
  {
    const auto listener = WebListener::open({.path = path("a")}, 0600);
    ASSERT_TRUE(listener.ok()) << listener.error().text();
    std::filesystem::remove(path("a"));
    write_file(path("a"), "precious");
  }
  EXPECT_EQ(read_file(path("a")), "precious");
}

}  // namespace
}  // namespace cuvmm::test
