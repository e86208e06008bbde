// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace cuvmm::observe {

// The head of a request, as far as it matters here.
struct HttpRequest {
  std::string method;
  std::string path;   // without the query
  std::string label;  // the query's, decoded
  std::string token;  // of the Authorization header, else the query's `token`
  std::string host;   // without the port, in small letters
  std::string accept;
  bool is_head() const { return method == "HEAD"; }
};

inline constexpr std::size_t longest_request = 8192;

// Reads what has come so far.
struct HttpParse {
  enum class State : unsigned char { Incomplete, Bad, Whole } state = State::Incomplete;
  HttpRequest request = {};
};
HttpParse parse_request(std::string_view text);

// In the value of a query.
std::string percent_encoded(std::string_view text);

// "localhost", or an address of this machine's own interface.
bool is_loopback_name(std::string_view host);

// In a time that depends on the lengths alone.
bool is_same_secret(std::string_view a, std::string_view b);

}  // namespace cuvmm::observe
