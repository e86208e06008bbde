// SPDX-License-Identifier: Apache-2.0
// The service's configuration: its meaning, and its error messages.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/config.hpp"
#include "daemon/history.hpp"
#include "daemon/service_world.hpp"

namespace cuvmm::test {
namespace {

using namespace daemon;

ConfigRead parsed(const std::string& text, Serves serves = Serves::OneUser) {
  return parse_config(text, "f.toml", serves);
}

TEST(NodeConfiguration, SetsCapacitiesAndTerms) {
  const ConfigRead read = parsed(
      "[capacity]\n"
      "0 = \"24G\"\n"
      "host = \"64G\"\n"
      "host_per_user = \"48G\"\n"
      "[[client]]\n"
      "name = \"trainer\"\n"
      "user = 1000\n"
      "cgroup = \"/system.slice/train.service\"\n"
      "guarantee = \"10G\"\n"
      "limit = \"20G\"\n"
      "weight = 3\n"
      "priority = -5\n"
      "[[client]]\n"
      "user = \"root\"\n"
      "guarantee = \"2G\"\n");
  ASSERT_TRUE(read.ok()) << read.problem;
  EXPECT_EQ(read.config.capacity.at("0"), 24 * GiB);
  EXPECT_EQ(read.config.host, 64 * GiB);
  EXPECT_EQ(read.config.host_per_user, 48 * GiB);
  ASSERT_EQ(read.config.rules.size(), 2u);
  const ClientRule& rule = read.config.rules[0];
  EXPECT_EQ(rule.name, "trainer");
  EXPECT_EQ(rule.user, 1000u);
  EXPECT_EQ(rule.guarantee, 10 * GiB);
  EXPECT_EQ(rule.limit, 20 * GiB);
  EXPECT_EQ(rule.weight, 3u);
  EXPECT_EQ(rule.priority, -5);
  EXPECT_EQ(read.config.rules[1].user, 0u);
  EXPECT_EQ(read.config.guaranteed(), 12 * GiB);
}

TEST(NodeConfiguration, ProblemsNameFileLineAndKey) {
  const auto problem = [](const std::string& text) { return parsed(text).problem; };
  EXPECT_EQ(problem("\nspeed = 1\n").substr(0, 16), "f.toml:2: speed:");
  EXPECT_EQ(problem("[capacity]\n0 = 24\n"),
            "f.toml:2: 0: must be a size in quotes, such as \"16G\"");
  EXPECT_EQ(problem("[[client]]\nname = \"a\"\nguarantee = \"much\"\n").substr(0, 20),
            "f.toml:3: guarantee:");
  EXPECT_EQ(problem("[[client]]\nname = \"a\"\nweight = 0\n"),
            "f.toml:3: weight: must be a whole number from 1 to 10000");
  EXPECT_EQ(problem("[[client]]\nname = \"a\"\ncolour = \"red\"\n").substr(0, 17),
            "f.toml:3: colour:");
  EXPECT_EQ(problem("[[client]]\nuser = \"nobody of that name\"\n"),
            "f.toml:2: user: there is no user 'nobody of that name'");
  EXPECT_EQ(problem("[[client]]\nname = \"a\"\nlimit = \"1G\"\nguarantee = \"2G\"\n"),
            "f.toml:4: guarantee: 2.00 GiB exceeds the limit of 1.00 GiB");
  EXPECT_EQ(problem("[[client]]\nlimit = \"1G\"\n").substr(0, 17), "f.toml:1: client:");
  EXPECT_EQ(problem("[capacity\n").substr(0, 9), "f.toml:1:");
  EXPECT_EQ(problem("client = 3\n").substr(0, 17), "f.toml:1: client:");
  EXPECT_EQ(read_config("/nowhere", Serves::OneUser).problem,
            "/nowhere: it cannot be read (No such file or directory)");
}

TEST(NodeConfiguration, SaysWhenPausedClientsLeaveTheirDevices) {
  EXPECT_FALSE(parsed("").config.deep_pause.after.has_value()) << "unless configured, never";
  const ConfigRead read = parsed(
      "deep_pause_after = \"10m\"\n"
      "[[client]]\nname = \"a\"\ndeep_pause_after = \"off\"\n"
      "[[client]]\nname = \"b\"\ndeep_pause_after = \"1.5s\"\n"
      "[[client]]\nname = \"c\"\n");
  ASSERT_TRUE(read.ok()) << read.problem;
  EXPECT_EQ(read.config.deep_pause.after, 600'000'000u);
  EXPECT_EQ(read.config.rules[0].deep_pause->after, std::nullopt);
  EXPECT_EQ(read.config.rules[1].deep_pause->after, 1'500'000u);
  EXPECT_FALSE(read.config.rules[2].deep_pause.has_value()) << "as for all others";
  for (const char* wrong : {"deep_pause_after = 10\n", "deep_pause_after = \"10\"\n",
                            "deep_pause_after = \"soon\"\n"}) {
    EXPECT_EQ(parsed(wrong).problem,
              "f.toml:1: deep_pause_after: must be a time in quotes, such as \"10m\", or \"off\"");
  }
}

TEST_F(NodeService, ATimeForDeepPausesThatIsNoTimeIsRefused) {
  std::string said;
  EXPECT_EQ(start_and_wait({"--deep-pause-after", "soon"}, &said), 2);
  EXPECT_NE(said.find("--deep-pause-after: allowed: a time"), std::string::npos) << said;
}

TEST(NodeConfiguration, ForAllUsersANameAloneGrantsNothing) {
  const std::string text = "[[client]]\nname = \"a\"\nguarantee = \"1G\"\n";
  EXPECT_TRUE(parsed(text).ok());
  EXPECT_FALSE(parsed(text, Serves::AllUsers).ok());
  EXPECT_TRUE(parsed(text + "user = 0\n", Serves::AllUsers).ok());
  EXPECT_TRUE(parsed("[[client]]\nname = \"a\"\nlimit = \"1G\"\n", Serves::AllUsers).ok());
}

TEST_F(NodeService, GuaranteesThatDoNotFitAreRefusedAtTheStart) {
  write_file("c.toml",
             "[[client]]\nname = \"a\"\nguarantee = \"200M\"\n"
             "[[client]]\nname = \"b\"\nguarantee = \"100M\"\n");
  std::string said;
  EXPECT_EQ(start_and_wait({"--config", file("c.toml"), "--check"}, &said), 1);
  EXPECT_NE(said.find("guarantees add up to 300 MiB, and device 0 has 256 MiB"), std::string::npos)
      << said;
  EXPECT_EQ(start_and_wait({"--config", file("c.toml")}, &said), 1);
  EXPECT_EQ(start_and_wait({"--capacity", "3=1G", "--check"}, &said), 1);
  EXPECT_EQ(start_and_wait({"--capacity", "much", "--check"}, &said), 2);
}

TEST_F(NodeService, AConfigurationIsReadAgainAndABadOneChangesNothing) {
  write_file("c.toml", "[[client]]\nname = \"a\"\nlimit = \"100M\"\n");
  start({"--config", file("c.toml")});
  RawClient client = RawClient::at(*this, "a");
  ASSERT_EQ(client.hear<node::PlaceTerms>()->limit, 100 * MiB);
  write_file("c.toml", "[[client]]\nname = \"a\"\nlimit = \"50M\"\n");
  service().signal(SIGHUP);
  EXPECT_EQ(client.hear<node::PlaceTerms>()->limit, 50 * MiB);
  write_file("c.toml", "[[client]]\nname = \"a\"\nlimit = 7\n");
  service().signal(SIGHUP);
  EXPECT_TRUE(comes_true(
      [&] { return read_file("service.log").find("limit: must be") != std::string::npos; }));
  EXPECT_FALSE(client.lease(60 * MiB));
  EXPECT_TRUE(client.lease(40 * MiB));
}

// The configuration is a FIFO, so that the service waits for the test to write it.
TEST_F(NodeService, AReloadThatIsRequestedWhileItStartsIsDoneAfterwards) {
  ASSERT_EQ(::mkfifo(file("c.toml").c_str(), 0600), 0);
  const std::string cuvmmd = CUVMM_BIN "/cuvmmd";
  RunningProgram starting{
      {cuvmmd, "--socket", socket(), sim(), "--config", file("c.toml")}, {}, file("service.log")};
  Fd pipe;
  const auto service_reads = [&] {
    pipe = Fd{::open(file("c.toml").c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC)};
    return pipe.is_open();
  };
  const auto write_limit = [&](const std::string& limit) {
    const std::string text = "[[client]]\nname = \"a\"\nlimit = \"" + limit + "\"\n";
    EXPECT_EQ(::write(pipe.number(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
    pipe = {};
  };
  ASSERT_TRUE(comes_true(service_reads));
  starting.signal(SIGHUP);
  write_limit("100M");
  ASSERT_TRUE(comes_true([&] { return RawClient{socket()}.is_open(); }));
  ASSERT_TRUE(comes_true(service_reads));
  write_limit("50M");
  RawClient client = RawClient::at(*this, "a");
  EXPECT_EQ(client.hear<node::PlaceTerms>()->limit, 50 * MiB);
}

TEST_F(NodeService, AReloadThatFindsAFolderKeepsThePreviousConfiguration) {
  write_file("c.toml", "[[client]]\nname = \"a\"\nlimit = \"50M\"\n");
  start({"--config", file("c.toml")});
  ASSERT_EQ(::unlink(file("c.toml").c_str()), 0);
  ASSERT_EQ(::mkdir(file("c.toml").c_str(), 0700), 0);
  service().signal(SIGHUP);
  EXPECT_TRUE(comes_true([&] {
    return read_file("service.log").find("c.toml: it cannot be read (Is a directory)") !=
           std::string::npos;
  }));
  RawClient client = RawClient::at(*this, "a");
  EXPECT_EQ(client.hear<node::PlaceTerms>()->limit, 50 * MiB);
}

TEST_F(NodeService, GuaranteesCanChangePlacesInOneReload) {
  const auto guarantee = [&](const char* a, const char* b) {
    const std::string one = "[[client]]\nname = \"";
    write_file("c.toml",
               one + "a\"\nguarantee = \"" + a + "\"\n" + one + "b\"\nguarantee = \"" + b + "\"\n");
  };
  guarantee("50M", "200M");
  start({"--config", file("c.toml")});
  RawClient first = RawClient::at(*this, "a");
  ASSERT_EQ(first.hear<node::PlaceTerms>()->guarantee, 50 * MiB);
  RawClient second = RawClient::at(*this, "b");
  ASSERT_EQ(second.hear<node::PlaceTerms>()->guarantee, 200 * MiB);
  guarantee("200M", "50M");
  service().signal(SIGHUP);
  EXPECT_EQ(first.hear<node::PlaceTerms>()->guarantee, 200 * MiB);
  EXPECT_EQ(second.hear<node::PlaceTerms>()->guarantee, 50 * MiB);
}

TEST_F(NodeService, AReloadCanLowerCapacityAndGuaranteesTogether) {
  const auto configure = [&](const char* capacity, const char* a, const char* b) {
    write_file("c.toml", std::string{"[capacity]\n0 = \""} + capacity +
                             "\"\n[[client]]\nname = \"a\"\nguarantee = \"" + a +
                             "\"\n[[client]]\nname = \"b\"\nguarantee = \"" + b + "\"\n");
  };
  configure("256M", "200M", "20M");
  start({"--config", file("c.toml")});
  RawClient first = RawClient::at(*this, "a");
  ASSERT_EQ(first.hear<node::PlaceTerms>()->guarantee, 200 * MiB);
  RawClient second = RawClient::at(*this, "b");
  ASSERT_EQ(second.hear<node::PlaceTerms>()->guarantee, 20 * MiB);
  configure("120M", "40M", "80M");
  service().signal(SIGHUP);
  EXPECT_EQ(first.hear<node::PlaceTerms>()->guarantee, 40 * MiB);
  EXPECT_EQ(second.hear<node::PlaceTerms>()->guarantee, 80 * MiB);
  EXPECT_EQ(look_at_device(socket()).capacity, 120 * MiB);
}

TEST_F(NodeService, AReloadThatIsRefusedChangesNoPlace) {
  write_file("c.toml", "[capacity]\nhost = \"512M\"\n");
  start({"--config", file("c.toml")});
  RawClient client = RawClient::at(*this, "a", 150 * MiB);
  ASSERT_EQ(client.hear<node::PlaceTerms>()->guarantee, 150 * MiB);
  write_file("c.toml", "[capacity]\nhost = \"256M\"\n0 = \"100M\"\n");
  service().signal(SIGHUP);
  EXPECT_TRUE(comes_true([&] {
    return read_file("service.log").find("connected clients are guaranteed") != std::string::npos;
  }));
  for (const auto& place : look_at_all<node::PlaceState>(socket())) {
    EXPECT_EQ(place.capacity, place.kind == node::PlaceKind::Host ? 512 * MiB : memory);
  }
}

TEST_F(NodeService, AReloadSaysWhoseGuaranteeDoesNotFitAnyMore) {
  write_file("c.toml", "");
  start({"--config", file("c.toml")});
  RawClient first = RawClient::at(*this, "a");
  ASSERT_TRUE(first.hear<node::PlaceTerms>());
  RawClient second = RawClient::at(*this, "a");
  ASSERT_TRUE(second.hear<node::PlaceTerms>());
  write_file("c.toml", "[[client]]\nname = \"a\"\nguarantee = \"150M\"\n");
  service().signal(SIGHUP);
  EXPECT_EQ(first.hear<node::PlaceTerms>()->guarantee, 150 * MiB);
  EXPECT_EQ(second.hear<node::PlaceTerms>()->guarantee, 0u);
  EXPECT_NE(read_file("service.log").find("gets no guarantee on"), std::string::npos);
}

TEST_F(NodeService, AClientWhoseRulesGuaranteeDoesNotFitGetsTheRestOfTheRule) {
  write_file("c.toml", "[[client]]\nname = \"a\"\nguarantee = \"150M\"\nlimit = \"200M\"\n");
  start({"--config", file("c.toml")});
  RawClient first = RawClient::at(*this, "a");
  EXPECT_EQ(first.hear<node::PlaceTerms>()->guarantee, 150 * MiB);
  RawClient second = RawClient::at(*this, "a");
  const auto terms = second.hear<node::PlaceTerms>();
  ASSERT_TRUE(terms) << "it is refused";
  EXPECT_EQ(terms->guarantee, 0u);
  EXPECT_EQ(terms->limit, 200 * MiB);
  EXPECT_NE(read_file("service.log").find("client a gets no guarantee on"), std::string::npos);
  first.close();
  const auto later = second.hear<node::PlaceTerms>();
  ASSERT_TRUE(later);
  EXPECT_EQ(later->guarantee, 150 * MiB) << "there is room for it now";
}

TEST_F(NodeService, ADeviceUsedLaterKeepsARulesLimitIfItsGuaranteeDoesNotFit) {
  write_file("c.toml", "[[client]]\nname = \"a\"\nguarantee = \"150M\"\nlimit = \"200M\"\n");
  start({"--config", file("c.toml")});
  RawClient first = RawClient::at(*this, "a");
  EXPECT_EQ(first.hear<node::PlaceTerms>()->guarantee, 150 * MiB);
  RawClient second{socket()};
  second.say(node::Greeting{.name = "a", .places = 0});
  ASSERT_TRUE(second.hear<node::Accepted>());
  second.say(node::HeldAlready{.place = first.device(), .limit = unlimited});
  const auto terms = second.hear<node::PlaceTerms>();
  ASSERT_TRUE(terms);
  EXPECT_EQ(terms->guarantee, 0u);
  EXPECT_EQ(terms->limit, 200 * MiB);
}

TEST(NodeHistoryOfClients, ForgetsANewcomerThatWasRefused) {
  NodeHistory history{{[](node::ClientId) { return "a"; }, [](node::ClientId) { return 0; },
                       [](node::PlaceId) { return "0"; }}};
  history.note(node::ClientCame{1, {}, {}}, {node::TermsRefused{1}}, 1);
  history.note(node::ClientCame{2, {}, {}}, {}, 2);
  EXPECT_EQ(history.label_of(1), "");
  EXPECT_EQ(history.label_of(2), "a") << "the name is not taken";
  history.note(node::TermsChanged{2, {}}, {node::TermsRefused{2}}, 3);
  const auto events = history.events(4);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].outcome, "refused");
  EXPECT_EQ(events[1].outcome, "") << "it has joined, and only its new terms were refused";
}

TEST_F(NodeService, ALimitOfARuleIsOneOfDevicesOnly) {
  write_file("c.toml", "[[client]]\nname = \"a\"\nlimit = \"100M\"\n");
  start({"--config", file("c.toml")});
  RawClient client = RawClient::at(*this, "a");
  ASSERT_EQ(client.hear<node::PlaceTerms>()->limit, 100 * MiB);
  client.say(node::HeldAlready{.place = {}, .bytes = 0, .guarantee = 0, .limit = unlimited});
  const auto host = client.hear<node::PlaceTerms>();
  ASSERT_TRUE(host);
  EXPECT_EQ(host->place, node::PlaceUuid{});
  EXPECT_EQ(host->limit, node::unlimited);
}

TEST_F(NodeService, CapacityIsWhatClientsMayHaveTogether) {
  start({"--capacity", "0=64M"});
  RawClient client = RawClient::at(*this, "a");
  EXPECT_FALSE(client.lease(65 * MiB));
  EXPECT_TRUE(client.lease(64 * MiB));
}

}  // namespace
}  // namespace cuvmm::test
