// SPDX-License-Identifier: Apache-2.0
#include "observe/http_request.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace cuvmm::observe {
namespace {

bool is_token_letter(char letter) {
  constexpr std::string_view marks = "!#$%&'*+-.^_`|~";
  return is_digit(letter) || (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
         marks.find(letter) != std::string_view::npos;
}

bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), &is_token_letter);
}

bool is_visible(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char letter) { return letter > ' ' && letter <= '~'; });
}

bool is_header_value(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char letter) {
    return letter == '\t' || (letter >= ' ' && letter <= '~') || (letter & 0x80) != 0;
  });
}

// Takes the text up to the separator, and the separator. Returns nothing if there is none.
std::optional<std::string_view> take_until(std::string_view& text, std::string_view separator) {
  const std::size_t end = text.find(separator);
  if (end == std::string_view::npos) return {};
  const std::string_view taken = text.substr(0, end);
  text.remove_prefix(end + separator.size());
  return taken;
}

std::optional<unsigned> hexadecimal_digit(char digit) {
  if (is_digit(digit)) return digit - '0';
  const char small = static_cast<char>(digit | 0x20);
  if (small >= 'a' && small <= 'f') return small - 'a' + 10;
  return {};
}

// Leaves invalid escapes as they are.
std::string percent_decoded(std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_whole = text[i] == '%' && i + 2 < text.size();
    const auto high = is_whole ? hexadecimal_digit(text[i + 1]) : std::nullopt;
    const auto low = is_whole ? hexadecimal_digit(text[i + 2]) : std::nullopt;
    if (!high || !low) {
      decoded += text[i];
      continue;
    }
    decoded += static_cast<char>(*high * 16 + *low);
    i += 2;
  }
  return decoded;
}

std::string value_in_query(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::string_view part = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), part.size() + 1));
    const std::size_t equals = part.find('=');
    if (equals != std::string_view::npos && part.substr(0, equals) == name) {
      return std::string{part.substr(equals + 1)};
    }
  }
  return "";
}

// Accepts "[::1]:9435" and "localhost:9435". Returns nothing if the text is not a host.
std::optional<std::string> host_without_port(std::string_view host) {
  std::string name;
  if (host.starts_with('[')) {
    const std::size_t end = host.find(']');
    if (end == std::string_view::npos) return {};
    name = host.substr(0, end + 1);
    host.remove_prefix(end + 1);
  } else {
    name = host.substr(0, host.find(':'));
    host.remove_prefix(name.size());
  }
  if (!host.empty() &&
      (host.front() != ':' || !std::all_of(host.begin() + 1, host.end(), &is_digit))) {
    return {};
  }
  for (char& letter : name) {
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  }
  return name;
}

// Takes the scheme and the host off an absolute target, as in "http://localhost:9435/metrics".
bool take_host(std::string_view& target, HttpRequest& request) {
  if (target.starts_with('/')) return true;
  constexpr std::string_view scheme = "http://";
  if (!equal_in_any_case(target.substr(0, scheme.size()), scheme)) return false;
  target.remove_prefix(scheme.size());
  const std::string_view authority = target.substr(0, target.find_first_of("/?"));
  target.remove_prefix(authority.size());
  request.host = host_without_port(authority);
  return request.host && !request.host->empty();
}

bool read_request_line(std::string_view line, HttpRequest& request, bool& needs_host) {
  const auto method = take_until(line, " ");
  auto target = take_until(line, " ");
  const bool is_http = line == "HTTP/1.1" || line == "HTTP/1.0";
  if (!method || !target || !is_http || !is_token(*method)) return false;
  if (!is_visible(*target) || !take_host(*target, request)) return false;
  needs_host = line == "HTTP/1.1";
  request.method = *method;
  request.path = target->substr(0, target->find('?'));
  if (request.path.empty()) request.path = "/";
  const std::size_t query = target->find('?');
  if (query != std::string_view::npos) {
    request.token = value_in_query(target->substr(query + 1), "token");
    request.label = percent_decoded(value_in_query(target->substr(query + 1), "label"));
  }
  return true;
}

bool read_header(std::string_view line, HttpRequest& request, bool& has_host) {
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos) return false;
  const std::string_view name = line.substr(0, colon);
  const std::string_view value = without_outer_blanks(line.substr(colon + 1));
  // Leading whitespace would continue the previous line.
  if (!is_token(name) || !is_header_value(value)) return false;
  if (equal_in_any_case(name, "host")) {
    const auto host = host_without_port(value);
    if (has_host || !host) return false;
    has_host = true;
    if (!request.host) request.host = *host;  // that of an absolute target takes precedence
  } else if (equal_in_any_case(name, "accept")) {
    request.accept += (request.accept.empty() ? "" : ",") + std::string{value};
  } else if (equal_in_any_case(name, "authorization")) {
    constexpr std::string_view scheme = "bearer ";
    if (value.size() > scheme.size() && equal_in_any_case(value.substr(0, scheme.size()), scheme)) {
      request.token = without_outer_blanks(value.substr(scheme.size()));
    } else {
      request.token = "?";  // another scheme, which never matches
    }
  }
  return true;
}

}  // namespace

HttpParse parse_request(std::string_view text) {
  using State = HttpParse::State;
  const std::size_t end = text.find("\r\n\r\n");
  if (end == std::string_view::npos) {
    return {text.size() > longest_request ? State::Bad : State::Incomplete};
  }
  if (end > longest_request) return {State::Bad};
  std::string_view head = text.substr(0, end + 2);
  HttpParse parse{State::Whole};
  bool needs_host = true;
  bool has_host = false;
  const auto first = take_until(head, "\r\n");
  if (!first || !read_request_line(*first, parse.request, needs_host)) return {State::Bad};
  while (const auto line = take_until(head, "\r\n")) {
    if (!read_header(*line, parse.request, has_host)) return {State::Bad};
  }
  if (needs_host && !has_host) return {State::Bad};
  return parse;
}

std::string percent_encoded(std::string_view text) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  std::string encoded;
  for (const char letter : text) {
    const auto byte = static_cast<unsigned char>(letter);
    const char small = static_cast<char>(byte | 0x20);
    if (is_digit(letter) || (small >= 'a' && small <= 'z')) {
      encoded += letter;
    } else {
      encoded += {'%', digits[byte / 16], digits[byte % 16]};
    }
  }
  return encoded;
}

bool is_loopback_name(std::string_view host) {
  return host == "localhost" || host == "127.0.0.1" || host == "[::1]";
}

bool is_same_secret(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < a.size() && !b.empty(); ++i) {
    difference |= static_cast<unsigned char>(a[i] ^ b[i % b.size()]);
  }
  return difference == 0;
}

}  // namespace cuvmm::observe
