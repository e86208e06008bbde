// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "base/fd.hpp"
#include "base/result.hpp"
#include "share/runtime_socket.hpp"

namespace cuvmm::observe {

// An address of the live view and the metrics: "127.0.0.1:9435", "[::1]:9435", "9435" (on
// 127.0.0.1), or the path of a Unix socket.
struct WebAddress {
  std::string path;  // of a Unix socket; empty: a network address
  std::string host;
  std::uint16_t port = 0;  // 0: any free port
  bool is_ipv6 = false;
  bool is_loopback = true;

  std::string text() const;
  std::string host_in_url() const;  // an IPv6 address in brackets
};
inline constexpr std::uint16_t usual_web_port = 9435;
std::optional<WebAddress> read_web_address(const std::string& text);

// A listening socket. The destructor removes the file of a Unix socket that it opened.
class WebListener {
 public:
  // Replaces a dead process's Unix socket, but no living one's and no other file.
  static Result<WebListener> open(const WebAddress& address, mode_t mode_of_socket);
  static WebListener adopt(Fd socket);  // an inherited Unix socket

  int descriptor() const;
  // With the actual port if port 0 was requested.
  const WebAddress& address() const { return address_; }
  // The user at the other end of a connection; nothing if unknown.
  std::optional<uid_t> user_of(const Fd& connection) const;

 private:
  WebListener() = default;

  WebAddress address_;
  std::optional<share::ListeningSocket> socket_at_path_;
  Fd socket_;  // otherwise: at a port, or inherited
};

// The user at the other end of a loopback connection, from /proc/net/tcp.
std::optional<uid_t> user_of_loopback_peer(const Fd& connection);

}  // namespace cuvmm::observe
