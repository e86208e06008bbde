// SPDX-License-Identifier: Apache-2.0
// Processes that share memory or events are members of one group.
#include "daemon/share_keys.hpp"

#include <signal.h>

#include <deque>
#include <regex>

#include "daemon/leased_world.hpp"
#include "lease/share_key.hpp"

namespace cuvmm::test {
namespace {

using namespace node;

constexpr ShareKey a_key{1, 2, 3};
constexpr ShareKey another_key{4, 5, 6};

ShareKey key_number(std::size_t number) {
  ShareKey key{};
  std::memcpy(key.data(), &number, sizeof number);
  return key;
}

TEST(ShareKeys, JoinTheClientsOfOneUserThatNameThem) {
  daemon::ShareKeys keys;
  EXPECT_TRUE(keys.name(1, 1000, a_key).empty());
  EXPECT_TRUE(keys.name(2, 1000, another_key).empty());
  EXPECT_TRUE(keys.name(3, 1001, a_key).empty()) << "another user's";
  EXPECT_EQ(keys.name(2, 1000, a_key), std::vector<ClientId>{1});
  EXPECT_EQ(keys.name(4, 1000, a_key), (std::vector<ClientId>{2, 1}));
  EXPECT_TRUE(keys.name(4, 1000, a_key).empty()) << "named twice";
  keys.forget(1);
  EXPECT_EQ(keys.name(5, 1000, a_key), (std::vector<ClientId>{4, 2}));
}

TEST(ShareKeys, JoinAClientWithABoundedNumberOfOthers) {
  daemon::ShareKeys keys;
  constexpr std::size_t most = daemon::ShareKeys::most_others;
  for (ClientId id = 1; id <= 2 * most; ++id) {
    const std::vector<ClientId> others = keys.name(id, 1000, a_key);
    EXPECT_EQ(others.size(), std::min<std::size_t>(id - 1, most));
    ASSERT_TRUE(others.empty() || others.front() == id - 1) << "so all are connected";
  }
}

TEST(ShareKeys, AreTheNewestOfEachClient) {
  daemon::ShareKeys keys;
  for (std::size_t i = 0; i <= most_share_keys; ++i) keys.name(1, 1000, key_number(i));
  EXPECT_TRUE(keys.name(2, 1000, key_number(0)).empty());
  EXPECT_EQ(keys.name(2, 1000, key_number(1)), std::vector<ClientId>{1});
  EXPECT_EQ(keys.name(2, 1000, key_number(most_share_keys)), std::vector<ClientId>{1});
}

TEST(ShareKeys, FollowFromTheProcessOfMemoryAndFromEachEvent) {
  share::IpcHandle ours{.kind = share::IpcHandle::ours, .process = 7, .instance = 8, .memory = 1};
  CUipcMemHandle first{};
  CUipcMemHandle second{};
  ours.write(&first);
  ours.memory = 2;
  ours.secret.bytes[0] = 1;
  ours.write(&second);
  EXPECT_EQ(lease::share_key_of(first), lease::share_key_of(second)) << "memory of one process";
  ours.instance = 9;
  ours.write(&second);
  EXPECT_NE(lease::share_key_of(first), lease::share_key_of(second));
  CUipcEventHandle event{};
  const ShareKey one = lease::share_key_of(event);
  event.reserved[63] = 1;
  const ShareKey other = lease::share_key_of(event);
  EXPECT_NE(one, other);
  EXPECT_FALSE(std::equal(one.begin() + 8, one.end(), other.begin() + 8)) << "both halves differ";
}

RawClient holder(const NodeService& service, const std::string& name, const std::string& group,
                 Size bytes) {
  RawClient client{service.socket()};
  client.set_device(device_of(service.socket()));
  client.say(Greeting{.name = name, .group = group, .places = 1});
  client.say(HeldAlready{client.device()});
  EXPECT_TRUE(client.hear<Accepted>());
  EXPECT_TRUE(client.lease(bytes));
  return client;
}

// By the clients' names.
std::map<std::string, std::string> groups(const NodeService& service) {
  std::map<std::string, std::string> all;
  for (const ClientState& client : look_at_all<ClientState>(service.socket())) {
    all[client.name] = client.group;
  }
  return all;
}

class SharingClients : public NodeService {};

TEST_F(SharingClients, ArePausedTogetherAndOthersAreNot) {
  start();
  RawClient exporter = holder(*this, "exporter", "", 100 * MiB);
  RawClient importer = holder(*this, "importer", "", 60 * MiB);
  RawClient outsider = holder(*this, "outsider", "", 40 * MiB);
  importer.say(SharesHandles{{another_key, a_key}});  // in any order
  exporter.say(SharesHandles{{a_key}});
  ASSERT_TRUE(comes_true([&] { return groups(*this)["importer"] == "with exporter"; }));
  EXPECT_EQ(groups(*this)["exporter"], "with exporter");
  EXPECT_EQ(groups(*this)["outsider"], "");
  RawClient asker = RawClient::at(*this, "asker", 100 * MiB);
  ASSERT_TRUE(asker.hear<Accepted>());
  asker.say(LeaseAsk{.request = 1, .place = asker.device(), .bytes = 100 * MiB});
  EXPECT_EQ(exporter.hear<ReclaimDemand>()->step, ReclaimStep::Pause);
  EXPECT_EQ(importer.hear<ReclaimDemand>()->step, ReclaimStep::Pause);
  EXPECT_FALSE(outsider.hear<ReclaimDemand>(200));
  exporter.close();
  EXPECT_TRUE(comes_true([&] { return groups(*this)["importer"].empty(); }));
}

TEST_F(SharingClients, StayAloneIfTheySayThatTheyWaitForNobody) {
  start();
  RawClient exporter = holder(*this, "exporter", "job", 32 * MiB);
  RawClient importer = holder(*this, "importer", "none", 32 * MiB);
  RawClient member = holder(*this, "member", "", 32 * MiB);
  exporter.say(SharesHandles{{a_key}});
  importer.say(SharesHandles{{a_key}});
  member.say(SharesHandles{{a_key}});
  ASSERT_TRUE(comes_true([&] { return groups(*this)["member"] == "job"; }));
  EXPECT_EQ(groups(*this)["importer"], "");
}

TEST_F(SharingClients, MustBeClientsAndSendNoMoreKeysThanAMessageHolds) {
  start();
  RawClient stranger{socket()};
  stranger.say(SharesHandles{{a_key}});
  EXPECT_TRUE(stranger.is_ended());
  RawClient client = holder(*this, "client", "", 32 * MiB);
  auto packet = encode(SharesHandles{std::vector<ShareKey>(most_share_keys, a_key)});
  client.say(packet);
  EXPECT_TRUE(client.lease(MiB)) << "it is still heard";
  packet[8] = std::byte{most_share_keys + 1};
  packet.resize(packet.size() + sizeof(ShareKey));
  client.say(packet);
  EXPECT_TRUE(client.is_ended());
}

// Fewer messages than a client may send if they are short.
TEST_F(SharingClients, LoseTheirConnectionSoonerByAFloodOfLongMessages) {
  start();
  RawClient client = holder(*this, "client", "", 32 * MiB);
  const auto packet = encode(SharesHandles{std::vector<ShareKey>(most_share_keys, a_key)});
  for (int i = 0; i < 10'000; ++i) client.say(packet);
  EXPECT_TRUE(client.is_ended());
  RawClient other = holder(*this, "other", "", 32 * MiB);
  for (int i = 0; i < 10'000; ++i) other.say(SharesHandles{{a_key}});
  EXPECT_FALSE(other.is_ended(200));
}

// Each is joined to some of the others only.
TEST_F(SharingClients, AreOneGroupHoweverMany) {
  start();
  std::deque<RawClient> clients;
  for (int i = 0; i < 40; ++i) {
    clients.push_back(holder(*this, "c" + std::to_string(i), "", MiB));
    clients.back().say(SharesHandles{{a_key}});
  }
  ASSERT_TRUE(comes_true([&] { return groups(*this)["c39"] == "with c0"; }));
  clients.pop_front();
  EXPECT_TRUE(comes_true([&] { return groups(*this)["c39"] == "with c1"; }));
}

TEST(LeasedBudgets, NameWhatIsSharedOnceAndAgainToANewService) {
  LeasedWorld world;
  world.leases.shares(a_key);  // before there is a service
  world.begin();
  EXPECT_EQ(world.service.hear<SharesHandles>().keys, std::vector{a_key});
  world.leases.shares(a_key);
  world.leases.shares(another_key);
  EXPECT_EQ(world.service.hear<SharesHandles>().keys, std::vector{another_key});
  world.service.hang_up();
  ASSERT_TRUE(comes_true([&] { return !world.leases.is_connected(); }));
  world.leases.shares(key_number(7));
  world.service.accept();
  world.service.greet();
  EXPECT_EQ(world.service.hear<SharesHandles>().keys,
            (std::vector{a_key, another_key, key_number(7)}));
}

// Events may be exported faster than messages may be sent.
TEST(LeasedBudgets, NameManyHandlesInFewMessages) {
  LeasedWorld world;
  world.begin();
  constexpr std::size_t count = 5'000;
  for (std::size_t i = 1; i <= count; ++i) world.leases.shares(key_number(i));
  std::size_t messages = 0;
  for (bool is_last = false; !is_last; ++messages) {
    const auto said = world.service.hear<SharesHandles>();
    ASSERT_FALSE(said.keys.empty());
    EXPECT_LE(said.keys.size(), most_share_keys);
    is_last = said.keys.back() == key_number(count);
  }
  EXPECT_LT(messages, count / 2);
}

// Nobody names a group: rank 1 has opened what rank 0 has exported. A third program needs memory of
// device 0 only; rank 1 gives way, too, and the bystander does not.
class ProgramsThatShare : public NodeService {
 public:
  void run(const std::string& what, bool is_contested) {
    start_on(",devices=2");
    std::vector<std::string> command = program("bystander", 32, 1'000'000);
    command.insert(command.begin() + 2, {"--guarantee", "64M"});
    RunningProgram bystander{command, required(), file("bystander")};
    std::deque<RunningProgram> ranks;
    for (const char* rank : {"0", "1"}) {
      const std::vector<std::string> arguments{
          rank, file("meeting"), "128", "1000000", "together", "10", what};
      ranks.emplace_back(test_program("rank", arguments,
                                      {"--name", std::string{"rank"} + rank, "--node-wait", "80s"}),
                         required(), file("ranks"));
    }
    ASSERT_TRUE(comes_true([&] {
      const auto all = groups(*this);
      return all.contains("bystander") && all.contains("rank1") && !all.at("rank1").empty();
    })) << read_file("ranks");
    EXPECT_EQ(groups(*this)["rank0"], groups(*this)["rank1"]);
    EXPECT_EQ(groups(*this)["bystander"], "");
    if (is_contested) {
      std::vector<std::string> guaranteed = program("wants", 128, 5);
      guaranteed.insert(guaranteed.begin() + 2, {"--guarantee", "160M"});
      // On a busy machine a rank may not stop in time: the program is refused, or memory that the
      // other rank gave is enough.
      int tries = 0;
      while ((RunningProgram{guaranteed, required(), file("wants")}.wait() != 0 ||
              !has_paused("rank0") || !has_paused("rank1")) &&
             ++tries < 60) {
        ::sleep(1);
      }
      // Both are asked, although the other rank's device has room.
      EXPECT_LT(tries, 60) << read_file("wants") << read_file("service.log");
    }
    // A rank ends if a word that it reads is wrong.
    const std::uint64_t before = kernels_of_rank(1);
    EXPECT_TRUE(comes_true([&] { return kernels_of_rank(1) > before + 30; }, 60))
        << read_file("ranks");
    for (RunningProgram& rank : ranks) {
      rank.signal(SIGKILL);
      EXPECT_EQ(rank.wait(), 128 + SIGKILL) << read_file("ranks");
    }
    if (!is_contested) return;
    const std::string log = read_file("service.log");
    EXPECT_EQ(log.find("bystander gave 32"), std::string::npos) << log;
  }

 private:
  bool has_paused(const std::string& rank) const {
    const std::regex paused{rank + " gave [^\\n]* to wants in [^\\n]*\\(pause\\)"};
    return std::regex_search(read_file("service.log"), paused);
  }

  std::uint64_t kernels_of_rank(std::size_t rank) const {
    const std::string meeting = read_file("meeting");
    std::uint64_t count = 0;
    if (meeting.size() < (rank + 1) * sizeof count) return 0;
    std::memcpy(&count, meeting.data() + rank * sizeof count, sizeof count);
    return count;
  }
};

TEST_F(ProgramsThatShare, MemoryAreOneGroup) {
  run("memory", false);
}

TEST_F(ProgramsThatShare, AnEventStopTogether) {
  run("event", true);
}

// The two examples, which end once the consumer has checked what the producer has granted.
TEST_F(ProgramsThatShare, GrantsAreOneGroup) {
  start();
  std::deque<RunningProgram> both;
  for (const std::string name : {"producer", "consumer"}) {
    const std::string bin = CUVMM_BIN;
    const std::vector<std::string> command{
        bin + "/cuvmm", "run", "--quiet",        sim(),      "--name",
        name,           "--",  bin + "/" + name, "--socket", file("grants")};
    both.emplace_back(command, required(), file(name));
    ASSERT_TRUE(name == "consumer" ||
                comes_true([&] { return read_file(name).find("Waiting") != std::string::npos; }))
        << read_file(name);
  }
  EXPECT_EQ(both[1].wait(), 0) << read_file("consumer");
  EXPECT_EQ(both[0].wait(), 0) << read_file("producer");
  const std::regex joined{"(producer and consumer|consumer and producer) share memory"};
  EXPECT_TRUE(comes_true([&] { return std::regex_search(read_file("service.log"), joined); }))
      << read_file("service.log");
}

// A service that is gone, or that does not know the message, is no reason to refuse the handle.
TEST_F(ProgramsThatShare, NeedNoService) {
  start_on(",devices=2");
  kill_service();
  std::deque<RunningProgram> ranks;
  for (const char* rank : {"0", "1"}) {
    const std::vector<std::string> arguments{rank, file("meeting"), "64", "2", "together",
                                             "2",  "memory"};
    ranks.emplace_back(test_program("rank", arguments), automatic(), file("ranks"));
  }
  for (RunningProgram& rank : ranks) EXPECT_EQ(rank.wait(), 0) << read_file("ranks");
}

}  // namespace
}  // namespace cuvmm::test
