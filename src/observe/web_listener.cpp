// SPDX-License-Identifier: Apache-2.0
#include "observe/web_listener.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "base/kept_text.hpp"
#include "base/text.hpp"
#include "share/system_error.hpp"

namespace cuvmm::observe {
namespace {

constexpr const char* serving_web = "serve the live view and the metrics";
constexpr int most_waiting = 64;

// An address of any family.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = sizeof(sockaddr_storage);

  sockaddr* generic() { return reinterpret_cast<sockaddr*>(&storage); }
  template <class Kind>
  Kind as() const {
    Kind kind{};
    std::memcpy(&kind, &storage, sizeof kind);
    return kind;
  }
  template <class Kind>
  static SocketAddress of(const Kind& kind) {
    SocketAddress address;
    std::memcpy(&address.storage, &kind, sizeof kind);
    address.size = sizeof kind;
    return address;
  }
};

Result<share::ListeningSocket> listen_at_path(const std::string& path, mode_t mode) {
  using share::ListeningSocket;
  auto socket = ListeningSocket::open(path, {.replace = ListeningSocket::Replace::Stale,
                                             .type = share::SocketType::Stream,
                                             .mode = mode});
  if (socket.ok()) return socket;
  Error error = socket.error();
  error.doing = serving_web;
  return error;
}

SocketAddress network_address(const WebAddress& where) {
  if (where.is_ipv6) {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(where.port);
    ::inet_pton(AF_INET6, where.host.c_str(), &address.sin6_addr);
    return SocketAddress::of(address);
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(where.port);
  ::inet_pton(AF_INET, where.host.c_str(), &address.sin_addr);
  return SocketAddress::of(address);
}

Result<Fd> listen_at_port(WebAddress& where) {
  SocketAddress address = network_address(where);
  Fd socket{
      ::socket(where.is_ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  const int on = 1;
  if (!socket.is_open() ||
      ::setsockopt(socket.number(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      (where.is_ipv6 &&
       ::setsockopt(socket.number(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on) != 0) ||
      ::bind(socket.number(), address.generic(), address.size) != 0 ||
      ::listen(socket.number(), most_waiting) != 0 ||
      ::getsockname(socket.number(), address.generic(), &address.size) != 0) {
    Error error = share::system_error(serving_web);
    error.subject = kept_error_text(where.text());
    return error;
  }
  where.port = ntohs(where.is_ipv6 ? address.as<sockaddr_in6>().sin6_port
                                   : address.as<sockaddr_in>().sin_port);
  return socket;
}

// The format of /proc/net/tcp: address words in memory order, ports as numbers.
std::string as_kernel_writes(const SocketAddress& address) {
  std::string text;
  std::array<char, 16> part{};
  const auto append_word = [&](const void* bytes) {
    std::uint32_t word = 0;
    std::memcpy(&word, bytes, sizeof word);
    std::snprintf(part.data(), part.size(), "%08X", word);
    text += part.data();
  };
  unsigned port = 0;
  if (address.storage.ss_family == AF_INET6) {
    const auto six = address.as<sockaddr_in6>();
    for (std::size_t i = 0; i < 4; ++i) append_word(six.sin6_addr.s6_addr + 4 * i);
    port = ntohs(six.sin6_port);
  } else {
    const auto four = address.as<sockaddr_in>();
    append_word(&four.sin_addr);
    port = ntohs(four.sin_port);
  }
  std::snprintf(part.data(), part.size(), ":%04X", port);
  return text + part.data();
}

}  // namespace

std::string WebAddress::text() const {
  if (!path.empty()) return path;
  return host_in_url() + ":" + std::to_string(port);
}

std::string WebAddress::host_in_url() const {
  return is_ipv6 ? "[" + host + "]" : host;
}

std::optional<WebAddress> read_web_address(const std::string& text) {
  WebAddress address;
  if (text.starts_with('/')) {
    address.path = text;
    return address;
  }
  const std::size_t colon = text.rfind(':');
  const bool has_host = colon != std::string::npos;
  std::string host = has_host ? text.substr(0, colon) : "127.0.0.1";
  const auto port = read_integer(has_host ? std::string_view{text}.substr(colon + 1) : text);
  if (!port || *port < 0 || *port > 65535) return {};
  address.port = static_cast<std::uint16_t>(*port);
  if (host == "localhost") host = "127.0.0.1";
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
    address.is_ipv6 = true;
    in6_addr parsed{};
    if (::inet_pton(AF_INET6, host.c_str(), &parsed) != 1) return {};
    address.is_loopback = IN6_IS_ADDR_LOOPBACK(&parsed) != 0;
  } else {
    in_addr parsed{};
    if (::inet_pton(AF_INET, host.c_str(), &parsed) != 1) return {};
    address.is_loopback = ntohl(parsed.s_addr) >> 24 == 127;
  }
  address.host = host;
  return address;
}

Result<WebListener> WebListener::open(const WebAddress& address, mode_t mode_of_socket) {
  WebListener listener;
  listener.address_ = address;
  if (address.path.empty()) {
    listener.socket_ = TRY(listen_at_port(listener.address_));
  } else {
    listener.socket_at_path_ = TRY(listen_at_path(address.path, mode_of_socket));
  }
  return listener;
}

WebListener WebListener::adopt(Fd socket) {
  WebListener listener;
  ::fcntl(socket.number(), F_SETFD, FD_CLOEXEC);
  ::fcntl(socket.number(), F_SETFL, O_NONBLOCK);
  listener.address_.path = "(the socket it was handed)";
  listener.socket_ = std::move(socket);
  return listener;
}

int WebListener::descriptor() const {
  return socket_at_path_ ? socket_at_path_->socket().number() : socket_.number();
}

std::optional<uid_t> WebListener::user_of(const Fd& connection) const {
  if (address_.path.empty()) {
    return address_.is_loopback ? user_of_loopback_peer(connection) : std::nullopt;
  }
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(connection.number(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return {};
  return peer.uid;
}

std::optional<uid_t> user_of_loopback_peer(const Fd& connection) {
  SocketAddress here;
  SocketAddress there;
  if (::getsockname(connection.number(), here.generic(), &here.size) != 0 ||
      ::getpeername(connection.number(), there.generic(), &there.size) != 0) {
    return {};
  }
  // The other end's line has the two addresses swapped. A socket that its process has closed does
  // not count: it is listed as root's, with the inode 0. One that is only shut down keeps its own.
  const std::string wanted = " " + as_kernel_writes(there) + " " + as_kernel_writes(here) + " ";
  std::ifstream table{here.storage.ss_family == AF_INET6 ? "/proc/net/tcp6" : "/proc/net/tcp"};
  for (std::string line; std::getline(table, line);) {
    const std::size_t found = line.find(wanted);
    if (found == std::string::npos) continue;
    unsigned user = 0;
    unsigned long inode = 0;
    // The state, queues, timer and retransmissions come before the user, a timeout after it.
    const char* const rest = line.c_str() + found + wanted.size();
    const bool is_read = std::sscanf(rest, "%*s %*s %*s %*s %u %*s %lu", &user, &inode) == 2;
    if (is_read && inode != 0) return user;
  }
  return {};
}

}  // namespace cuvmm::observe
