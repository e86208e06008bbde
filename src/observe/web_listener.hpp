// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "base/fd.hpp"
#include "base/result.hpp"

namespace cuvmm::observe {

// Where the live view and the metrics are served: "127.0.0.1:9435", "[::1]:9435", "9435" (of
// 127.0.0.1), or the path of a Unix socket.
struct WebAddress {
  std::string path;  // of a Unix socket; empty: an address of the network
  std::string host;
  std::uint16_t port = 0;  // 0: any
  bool is_ipv6 = false;
  bool is_loopback = true;

  std::string text() const;
};
inline constexpr std::uint16_t usual_web_port = 9435;
std::optional<WebAddress> read_web_address(const std::string& text);

// A socket that listens there.
class WebListener {
 public:
  static Result<WebListener> open(const WebAddress& address, mode_t mode_of_socket);
  static WebListener adopt(Fd socket);  // a Unix socket that somebody else opened

  WebListener(WebListener&& other) noexcept;
  WebListener& operator=(WebListener&&) = delete;
  ~WebListener();  // takes the file of its own socket away

  int descriptor() const { return socket_.number(); }
  // With the port that it has, where any was asked for.
  const WebAddress& address() const { return address_; }
  // Who is at the other end of a connection. Nothing where the system cannot tell.
  std::optional<uid_t> user_of(const Fd& connection) const;

 private:
  WebListener() = default;

  WebAddress address_;
  bool owns_file_ = false;
  Fd socket_;
};

// Who has the other end of a connection over loopback, as /proc/net/tcp says.
std::optional<uid_t> user_of_loopback_peer(const Fd& connection);

}  // namespace cuvmm::observe
