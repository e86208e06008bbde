// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "observe/http_request.hpp"
#include "observe/web_listener.hpp"

namespace cuvmm::test {
namespace {

using observe::HttpParse;
using observe::parse_request;
using State = HttpParse::State;

constexpr std::string_view whole =
    "GET /metrics?a=b&token=secret HTTP/1.1\r\nHost: LocalHost:9435\r\nACCEPT: text/plain\r\n\r\n";

TEST(HttpRequests, AreReadOnceComplete) {
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_EQ(parse_request(whole.substr(0, size)).state, State::Incomplete) << size;
  }
  const HttpParse parse = parse_request(whole);
  ASSERT_EQ(parse.state, State::Whole);
  EXPECT_EQ(parse.request.method, "GET");
  EXPECT_EQ(parse.request.path, "/metrics");
  EXPECT_EQ(parse.request.token, "secret");
  EXPECT_EQ(parse.request.host, "localhost");
  EXPECT_EQ(parse.request.accept, "text/plain");
}

TEST(HttpRequests, NameAClientByItsDecodedLabel) {
  const auto label_of = [](const std::string& query) {
    return parse_request("GET /client?" + query + " HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .request.label;
  };
  EXPECT_EQ(label_of("label=train"), "train");
  EXPECT_EQ(label_of("token=x&label=a%20%22b%22%2f%C3%A9"), "a \"b\"/\xc3\xa9");
  EXPECT_EQ(label_of("label=50%25"), "50%");
  EXPECT_EQ(label_of("label=%"), "%");
  EXPECT_EQ(label_of("label=%2"), "%2");
  EXPECT_EQ(label_of("label=%zz"), "%zz");
  const std::string odd = "a b&c=%\"#?\xff";
  EXPECT_EQ(label_of("label=" + observe::percent_encoded(odd)), odd);
}

TEST(HttpRequests, WithAnyByteChangedGetSomeAnswer) {
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (int byte = 0; byte < 256; ++byte) {
      std::string changed{whole};
      changed[i] = static_cast<char>(byte);
      const HttpParse parse = parse_request(changed);
      if (parse.state != State::Whole) continue;
      EXPECT_TRUE(parse.request.path.starts_with('/'));
    }
  }
}

TEST(HttpRequests, PreferATokenInTheHeaderToOneInTheAddress) {
  const auto token = [](const std::string& header) {
    return parse_request("GET /?token=query HTTP/1.1\r\nHost: a\r\n" + header + "\r\n\r\n")
        .request.token;
  };
  EXPECT_EQ(token("Authorization: Bearer  header"), "header");
  EXPECT_EQ(token("authorization: bearer header"), "header");
  EXPECT_EQ(token("X: y"), "query");
  EXPECT_EQ(token("Authorization: Basic query"), "?");
}

TEST(HttpRequests, OfHttp11NeedAHostButThoseOfHttp10DoNot) {
  EXPECT_EQ(parse_request("GET / HTTP/1.1\r\n\r\n").state, State::Bad);
  const HttpParse old = parse_request("GET / HTTP/1.0\r\n\r\n");
  ASSERT_EQ(old.state, State::Whole);
  EXPECT_EQ(old.request.host, std::nullopt);
  EXPECT_EQ(parse_request("GET / HTTP/1.0\r\nHost: a\r\n\r\n").request.host, "a");
  EXPECT_EQ(parse_request("GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n").state, State::Bad);
}

TEST(HttpRequests, TakeTheHostFromAnAbsoluteTarget) {
  const auto read = [](const std::string& target) {
    const HttpParse parse = parse_request("GET " + target + " HTTP/1.1\r\nHost: header\r\n\r\n");
    if (parse.state != State::Whole) return std::string{"(bad)"};
    return *parse.request.host + " " + parse.request.path + " " + parse.request.label;
  };
  EXPECT_EQ(read("/metrics"), "header /metrics ");
  EXPECT_EQ(read("http://LocalHost:9435/client?label=a"), "localhost /client a");
  EXPECT_EQ(read("HTTP://[::1]"), "[::1] / ");
  EXPECT_EQ(read("http://evil?label=//localhost/"), "evil / //localhost/");
  EXPECT_EQ(read("http://user@localhost/"), "user@localhost / ") << "which is not localhost";
  for (const char* const wrong :
       {"http:///metrics", "http://", "http://:80/", "http://a:b/", "https://localhost/",
        "localhost/metrics", "http:/metrics", "*"}) {
    EXPECT_EQ(read(wrong), "(bad)") << wrong;
  }
  EXPECT_EQ(parse_request("GET http://localhost/ HTTP/1.1\r\n\r\n").state, State::Bad)
      << "HTTP/1.1 also needs the header";
}

TEST(HttpRequests, HostsAreNamesWithoutTheirPort) {
  const auto host = [](const std::string& value) {
    const HttpParse parse = parse_request("GET / HTTP/1.1\r\nHost: " + value + "\r\n\r\n");
    return parse.state == State::Whole ? parse.request.host : std::optional<std::string>{"(bad)"};
  };
  EXPECT_EQ(host("[::1]:80"), "[::1]");
  EXPECT_EQ(host("127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(host("a:b"), "(bad)");
  EXPECT_EQ(host("[::1"), "(bad)");
  EXPECT_EQ(host("[::1]x"), "(bad)");
  EXPECT_TRUE(observe::is_loopback_name("[::1]"));
  EXPECT_FALSE(observe::is_loopback_name("localhost.evil"));
}

TEST(Secrets, AreEqualOnlyIfAllBytesAre) {
  EXPECT_TRUE(observe::is_same_secret("abc", "abc"));
  EXPECT_FALSE(observe::is_same_secret("abc", "abd"));
  EXPECT_FALSE(observe::is_same_secret("ab", "abc"));
  EXPECT_FALSE(observe::is_same_secret("abcabc", "abc"));
  EXPECT_FALSE(observe::is_same_secret("", "abc"));
  EXPECT_FALSE(observe::is_same_secret("abc", ""));
}

TEST(WebAddresses, AreAPortOfLoopbackUnlessTheySayMore) {
  const auto read = [](const char* text) {
    const auto address = observe::read_web_address(text);
    if (!address) return std::string{"(none)"};
    return address->text() + (address->is_loopback ? "" : " beyond");
  };
  EXPECT_EQ(read("9435"), "127.0.0.1:9435");
  EXPECT_EQ(read("localhost:80"), "127.0.0.1:80");
  EXPECT_EQ(read("127.3.2.1:80"), "127.3.2.1:80");
  EXPECT_EQ(read("[::1]:80"), "[::1]:80");
  EXPECT_EQ(read("0.0.0.0:80"), "0.0.0.0:80 beyond");
  EXPECT_EQ(read("[::]:80"), "[::]:80 beyond");
  EXPECT_EQ(read("/run/a.http"), "/run/a.http");
  for (const char* const wrong :
       {"", "host:80", "1.2.3.4:", "1.2.3.4:70000", ":80", "[::1]", "-1"}) {
    EXPECT_EQ(read(wrong), "(none)") << wrong;
  }
}

TEST(LoopbackPeers, AreKnownUntilTheyClose) {
  const Fd listening{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(::bind(listening.number(), generic, size), 0);
  ASSERT_EQ(::listen(listening.number(), 1), 0);
  ASSERT_EQ(::getsockname(listening.number(), generic, &size), 0);
  Fd client{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  ASSERT_EQ(::connect(client.number(), generic, size), 0);
  const Fd accepted{::accept4(listening.number(), nullptr, nullptr, SOCK_CLOEXEC)};
  EXPECT_EQ(observe::user_of_loopback_peer(accepted), ::geteuid());
  ASSERT_EQ(::shutdown(client.number(), SHUT_WR), 0);
  EXPECT_EQ(observe::user_of_loopback_peer(accepted), ::geteuid())
      << "it still waits for an answer";
  client.close();
  EXPECT_EQ(observe::user_of_loopback_peer(accepted), std::nullopt)
      << "it would be taken for root's";
}

}  // namespace
}  // namespace cuvmm::test
