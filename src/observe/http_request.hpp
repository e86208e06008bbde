// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace cuvmm::observe {

// The parts of a request's head that matter here.
struct HttpRequest {
  std::string method;
  std::string path;   // without the query
  std::string label;  // the query's `label`, decoded
  std::string token;  // from the Authorization header, or else the query's `token`
  // Without the port, in lower case; nothing if an HTTP/1.0 request names none.
  std::optional<std::string> host;
  std::string accept;
  bool is_head() const { return method == "HEAD"; }
};

inline constexpr std::size_t longest_request = 8192;

// Parses the bytes received so far.
struct HttpParse {
  enum class State : unsigned char { Incomplete, Bad, Whole } state = State::Incomplete;
  HttpRequest request = {};
};
HttpParse parse_request(std::string_view text);

// Encodes text as the value of a query.
std::string percent_encoded(std::string_view text);

// "localhost" or an address of the loopback interface.
bool is_loopback_name(std::string_view host);

// Compares in a time that depends only on the lengths.
bool is_same_secret(std::string_view a, std::string_view b);

}  // namespace cuvmm::observe
