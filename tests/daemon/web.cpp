// SPDX-License-Identifier: Apache-2.0
// Where the service serves HTTP, and what it refuses to do for it.
#include "daemon/service_world.hpp"
#include "node/service_socket.hpp"
#include "share/runtime_socket.hpp"

namespace cuvmm::test {
namespace {

using node::ClientState;
using node::PlaceTerms;

bool serves_at(const std::string& path) {
  return share::connect_to(path, {}, share::SocketType::Stream).ok();
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

bool has_begun(const std::string& log) {
  return contains(log, " serves its own user at ");
}

TEST_F(NodeService, AFileInPlaceOfTheNamedWebSocketIsKeptAndTheServiceDoesNotStart) {
  write_file("f.txt", "precious");
  write_file("g.new", "precious");
  for (const std::string name : {"f.txt", "g"}) {
    std::string said;
    ASSERT_EQ(start_and_wait({"--http", file(name)}, &said), 1);
    EXPECT_TRUE(contains(said, file(name) + ": ")) << said;
    EXPECT_TRUE(contains(said, "a file that is not a socket")) << said;
    EXPECT_FALSE(contains(said, socket())) << said << "it is not at fault";
  }
  EXPECT_EQ(read_file("f.txt"), "precious");
  EXPECT_EQ(read_file("g.new"), "precious");
}

TEST_F(NodeService, AFileInPlaceOfTheUsualWebSocketIsKeptAndTheServiceServesItsClients) {
  write_file("d.http", "precious");
  start();
  EXPECT_TRUE(comes_true([&] { return has_begun(read_file("service.log")); }));
  EXPECT_TRUE(contains(read_file("service.log"), file("d.http") + ": ")) << "it should warn";
  service().signal(SIGTERM);
  EXPECT_EQ(service().wait(), 0);
  EXPECT_EQ(read_file("d.http"), "precious");
}

TEST_F(NodeService, TwoServicesDoNotShareAWebSocket) {
  start();
  EXPECT_EQ(node::web_socket_beside(file("d")), file("d.http"));
  ASSERT_TRUE(comes_true([&] { return serves_at(file("d.http")); }));
  {
    RunningProgram second{{CUVMM_BIN "/cuvmmd", "--socket", file("d"), sim()}, {}, file("second")};
    EXPECT_TRUE(comes_true([&] { return has_begun(read_file("second")); }));
    EXPECT_TRUE(contains(read_file("second"), file("d.http") + ": ")) << "it should warn";
    EXPECT_TRUE(RawClient{file("d")}.is_open());
    second.signal(SIGTERM);
    EXPECT_EQ(second.wait(), 0);
  }
  EXPECT_TRUE(serves_at(file("d.http"))) << "the second service has removed it";
}

TEST(WebSockets, KeepTheEndingsThatTellServicesApart) {
  EXPECT_EQ(node::web_socket_beside("/run/cuvmmd.sock"), "/run/cuvmmd.http");
  EXPECT_EQ(node::web_socket_beside("/run/x.a"), "/run/x.a.http");
  EXPECT_EQ(node::web_socket_beside("/run/x.b"), "/run/x.b.http");
  EXPECT_EQ(node::web_socket_beside("/run.sock/node"), "/run.sock/node.http");
}

TEST_F(NodeService, TheUsualWebSocketMayBeNamedToo) {
  start({"--http", file("d.http")});
  EXPECT_TRUE(comes_true([&] { return has_begun(read_file("service.log")); }));
  EXPECT_TRUE(serves_at(file("d.http")));
  EXPECT_FALSE(contains(read_file("service.log"), "WARNING")) << read_file("service.log");
}

TEST_F(NodeService, WithTooFewDescriptorsToStartItSaysSo) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer needs descriptors of its own to check types";
#endif
  constexpr int fewest = 6;  // with fewer, the loader may complain
  constexpr int enough = 60;
  const std::string cuvmmd = CUVMM_BIN "/cuvmmd";
  int failures = 0;
  for (int limit = fewest; limit < enough; ++limit) {
    const std::string log = "limit-" + std::to_string(limit);
    const std::string command = "exec 3<&- 4<&- 5<&- 6<&- 7<&- 8<&- 9<&-; ulimit -n " +
                                std::to_string(limit) + "; exec \"$@\"";
    RunningProgram limited{
        {"/bin/sh", "-c", command, "sh", cuvmmd, "--socket", socket(), sim()}, {}, file(log)};
    ASSERT_TRUE(comes_true([&] { return limited.has_ended() || has_begun(read_file(log)); }))
        << read_file(log);
    if (!limited.has_ended()) break;
    ++failures;
    EXPECT_EQ(limited.wait(), 1) << limit;
    EXPECT_TRUE(contains(read_file(log), "Too many open files")) << limit << read_file(log);
  }
  EXPECT_GT(failures, 8) << "it opens more than that before it serves anybody";
}

TEST_F(NodeService, ASetOfANameThatNoClientCanHaveIsRefused) {
  start();
  const std::string longest(node::longest_name, 'a');
  RawClient client = RawClient::at(*this, longest);
  ASSERT_TRUE(client.hear<PlaceTerms>());
  const std::string cuvmm = CUVMM_BIN "/cuvmm";
  const auto set = [&](const std::string& name) {
    RunningProgram program{{cuvmm, "set", name, "--weight", "5"}, required(), file("set")};
    return program.wait();
  };
  const auto weight = [&] { return look_at_all<ClientState>(socket()).front().weight; };
  EXPECT_EQ(set(longest + "b"), 2);
  EXPECT_TRUE(contains(read_file("set"), "at most 64 bytes, this one has 65")) << read_file("set");
  EXPECT_EQ(weight(), 1u);
  EXPECT_EQ(set(longest), 0) << read_file("set");
  EXPECT_EQ(weight(), 5u);
}

}  // namespace
}  // namespace cuvmm::test
