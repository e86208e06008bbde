// SPDX-License-Identifier: Apache-2.0
// Strangers get nothing, and stop nobody.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <thread>

#include "share_world.hpp"
#include "support/lowered_limit.hpp"

namespace cuvmm::test {
namespace {

using namespace share;
using What = HostEvent::What;

// A host that a thread serves until the test is over.
class RunningHost {
 public:
  explicit RunningHost(const HostSettings& settings) : host_(NEEDED(Host::open(settings))) {
    thread_ = std::thread([this] {
      while (!over_.load()) (void)host_->wait(Deadline::after(std::chrono::milliseconds{20}));
    });
  }
  ~RunningHost() { end(); }
  Host& end() {
    over_ = true;
    if (thread_.joinable()) thread_.join();
    return *host_;
  }

 private:
  std::unique_ptr<Host> host_;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

TEST(ShareStrangers, WithAWrongTokenGetNothing) {
  const SharePlace place;
  RunningHost host{host_settings(place.socket())};
  const auto stranger = Session::connect(place.socket(), test_token(9), in_time());
  ASSERT_FALSE(stranger.ok());
  EXPECT_STREQ(stranger.error().subject, name_of(Refusal::Token));
  EXPECT_TRUE(Session::connect(place.socket(), test_token(), in_time()).ok());
}

TEST(ShareStrangers, OfAnotherVersionGetARefusal) {
  const SharePlace place;
  RunningHost host{host_settings(place.socket())};
  const Fd socket = NEEDED(connect_to(place.socket(), in_time()));
  std::array<std::byte, longest_packet> room;
  auto bytes = encode(Hello{test_token()}, room);
  room[4] = std::byte{99};
  ASSERT_EQ(::send(socket.number(), bytes.data(), bytes.size(), 0),
            static_cast<ssize_t>(bytes.size()));
  const auto answer = receive(socket, in_time());
  ASSERT_TRUE(answer.ok()) << said(answer);
  const auto* refused = std::get_if<Refused>(&answer->message);
  ASSERT_NE(refused, nullptr);
  EXPECT_EQ(refused->why, Refusal::Version);
  EXPECT_FALSE(receive(socket, in_time()).ok());  // and then nothing more
}

TEST(ShareStrangers, ThatSayNothingAreDroppedAndBlockNobody) {
  const SharePlace place;
  HostSettings settings = host_settings(place.socket());
  settings.patience = std::chrono::seconds{2};  // enough for others on a busy machine
  RunningHost host{settings};
  const Fd silent = NEEDED(connect_to(place.socket(), in_time()));
  EXPECT_TRUE(Session::connect(place.socket(), test_token(), in_time()).ok());
  const auto answer = receive(silent, in_time());
  ASSERT_FALSE(answer.ok());
  EXPECT_TRUE(says_gone(answer.error())) << said(answer);
}

TEST(ShareStrangers, ThatAskBeforeAGreetingAreDropped) {
  const SharePlace place;
  RunningHost host{host_settings(place.socket())};
  const Fd rude = NEEDED(connect_to(place.socket(), in_time()));
  ASSERT_TRUE(send(rude, Fetch{.grant = 1, .first = 0}, {}, in_time()).ok());
  EXPECT_FALSE(receive(rude, in_time()).ok());
}

TEST(ShareStrangers, ThatSendNonsenseAreDropped) {
  const SharePlace place;
  RunningHost host{host_settings(place.socket())};
  for (const std::size_t length : {std::size_t{1}, std::size_t{16}, longest_packet + 1000}) {
    const Fd rude = NEEDED(connect_to(place.socket(), in_time()));
    const std::string nonsense(length, 'x');
    ASSERT_GT(::send(rude.number(), nonsense.data(), nonsense.size(), 0), 0);
    EXPECT_FALSE(receive(rude, in_time()).ok()) << length;
  }
  EXPECT_TRUE(Session::connect(place.socket(), test_token(), in_time()).ok());
}

TEST(ShareStrangers, CannotLeaveDescriptorsBehind) {
  const SharePlace place;
  const auto host = NEEDED(Host::open(host_settings(place.socket())));
  const Fd rude = NEEDED(connect_to(place.socket(), in_time()));
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  const Fd reading{ends[0]};
  Fd writing{ends[1]};
  ASSERT_TRUE(send(rude, Chunks{.grant = 1, .first = 0, .sizes = {1}}, std::array{writing.number()},
                   in_time())
                  .ok());
  writing.close();
  char byte = 0;
  for (const auto until = in_time(); ::read(reading.number(), &byte, 1) != 0;) {
    ASSERT_FALSE(until.is_over()) << "somebody still holds the other end";
    (void)host->wait(soon());
  }
}

TEST(ShareStrangers, BeyondTheMaximumAreRefused) {
  const SharePlace place;
  HostSettings settings = host_settings(place.socket());
  settings.most_peers = 2;
  RunningHost host{settings};
  const auto first = Session::connect(place.socket(), test_token(), in_time());
  auto second = Session::connect(place.socket(), test_token(), in_time());
  const auto third = Session::connect(place.socket(), test_token(), in_time());
  EXPECT_TRUE(first.ok() && second.ok());
  ASSERT_FALSE(third.ok());
  EXPECT_STREQ(third.error().subject, name_of(Refusal::TooMany));
}

TEST(ShareStrangers, WaitingAtTheExportersEndAreTold) {
  const SharePlace place;
  auto host = std::make_unique<RunningHost>(host_settings(place.socket()));
  auto waits = NEEDED(Session::connect(place.socket(), test_token(), in_time()));
  host.reset();
  const auto nothing = waits.receive(in_time());
  ASSERT_FALSE(nothing.ok());
  EXPECT_EQ(nothing.error().kind, ErrorKind::NotFound);
  EXPECT_STREQ(nothing.error().subject, name_of(Refusal::Ended));
}

TEST(ShareStrangers, ConnectingAtTheExportersEndAreTold) {
  const SharePlace place;
  auto host = NEEDED(Host::open(host_settings(place.socket())));  // which no thread serves
  std::optional<Result<Session>> came;
  std::thread comes{[&] { came = Session::connect(place.socket(), test_token(), in_time()); }};
  std::this_thread::sleep_for(std::chrono::milliseconds{100});
  host.reset();
  comes.join();
  ASSERT_FALSE(came->ok());
  EXPECT_EQ(came->error().kind, ErrorKind::NotFound);
}

// As root, since another user is one setuid away.
TEST(ShareStrangers, OfAnotherUserGetNothing) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be somebody else";
  const SharePlace place;
  RunningHost host{host_settings(place.socket())};
  ASSERT_EQ(::chmod(place.folder().c_str(), 0755), 0);
  ASSERT_EQ(::chmod(place.socket().c_str(), 0666), 0);  // removes the only other protection
  constexpr uid_t nobody = 65534;
  // Everything that allocates memory comes before the fork, as other threads run.
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, place.socket().c_str(), sizeof address.sun_path - 1);
  std::array<std::byte, longest_packet> room;
  const auto hello = encode(Hello{test_token()}, room);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setresuid(nobody, nobody, nobody) != 0) ::_exit(3);
    const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET, 0);
    if (::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) ::_exit(4);
    (void)!::send(socket, hello.data(), hello.size(), MSG_NOSIGNAL);
    char answer[64];
    ::_exit(::recv(socket, answer, sizeof answer, 0) > 0 ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "it was answered";
}

TEST(ShareStrangers, CannotReadTheTokenOrTheSocket) {
  const SharePlace place;
  const auto host = NEEDED(Host::open(host_settings(place.socket())));
  ASSERT_TRUE(write_token(place.socket() + ".token", test_token()).ok());
  struct stat facts;
  ASSERT_EQ(::stat((place.socket() + ".token").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600u);
  ASSERT_EQ(::stat(place.socket().c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600u);
  EXPECT_TRUE(same(NEEDED(read_token(place.socket() + ".token")), test_token()));
  ASSERT_EQ(::chmod((place.socket() + ".token").c_str(), 0644), 0);
  EXPECT_FALSE(read_token(place.socket() + ".token").ok());
}

TEST(ShareSocket, OfALivingExporterIsNotReplaced) {
  const SharePlace place;
  const auto host = NEEDED(Host::open(host_settings(place.socket())));
  const auto second = Host::open(host_settings(place.socket()));
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().kind, ErrorKind::AlreadyExists);
}

TEST(ShareSocket, IsGoneWithItsHostAndMayBeOpenedAgain) {
  const SharePlace place;
  NEEDED(Host::open(host_settings(place.socket())));
  EXPECT_EQ(Session::connect(place.socket(), test_token(), in_time()).error().kind,
            ErrorKind::NotFound);
  EXPECT_TRUE(Host::open(host_settings(place.socket())).ok());
}

TEST(ShareSocket, IsServedUnderALimitOfNoDescriptors) {
  const SharePlace place;
  const auto host = NEEDED(Host::open(host_settings(place.socket())));
  const Fd importer = NEEDED(connect_to(place.socket(), in_time()));
  EXPECT_FALSE(NEEDED(host->wait(Deadline::after(std::chrono::milliseconds{20}))));
  const LoweredLimit none{RLIMIT_NOFILE, 0};
  ASSERT_TRUE(send(importer, Hello{test_token()}, {}, in_time()).ok());
  const auto event = host->wait(in_time());
  ASSERT_TRUE(event.ok()) << said(event);
  ASSERT_TRUE(event->has_value());
  EXPECT_EQ((*event)->what, What::Came);
  EXPECT_TRUE(receive(importer, in_time()).ok());
}

// A stranger's packet may name fewer chunks than the descriptors that come with it.
TEST(ShareSocket, TakesNoMoreDescriptorsThanThePacketNames) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const Fd stranger{ends[0]};
  const Fd importer{ends[1]};
  std::array<std::byte, longest_packet> room{};
  const auto bytes = encode(Chunks{.grant = 1, .sizes = {2 << 20, 2 << 20}}, room);
  std::array<int, 12> descriptors{};
  descriptors.fill(STDIN_FILENO);
  ASSERT_GT(send_bytes(stranger.number(), bytes, descriptors, 0), 0);
  const LoweredLimit few{RLIMIT_NOFILE, lowest_free_descriptor() + 5};
  const auto packet = receive(importer, in_time());
  ASSERT_FALSE(packet.ok());
  EXPECT_EQ(packet.error().kind, ErrorKind::InvalidArgument) << packet.error().text();
}

TEST(ShareSocket, WithoutAListenerIsRemovedFromTheFolder) {
  const SharePlace place;
  const std::string path = place.folder() + "/ipc-old.sock";
  {
    const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    ASSERT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    ::close(socket);
  }
  HostSettings settings = host_settings(place.folder() + "/ipc-living.sock");
  const auto living = NEEDED(Host::open(settings));
  remove_stale_sockets(NEEDED(PrivateFolder::open(place.folder())), "ipc-");
  EXPECT_NE(::access(path.c_str(), F_OK), 0);
  EXPECT_EQ(::access(settings.path.c_str(), F_OK), 0);
}

TEST(ShareSocket, OfAForkedChildIsClosed) {
  const SharePlace place;
  auto host = NEEDED(Host::open(host_settings(place.socket())));
  int to_child[2];
  int to_parent[2];
  ASSERT_EQ(::pipe2(to_child, O_CLOEXEC), 0);
  ASSERT_EQ(::pipe2(to_parent, O_CLOEXEC), 0);
  const pid_t child = ::fork();
  char byte = 'x';
  if (child == 0) {
    (void)!::write(to_parent[1], &byte, 1);
    ::close(to_child[1]);
    (void)!::read(to_child[0], &byte, 1);
    ::_exit(0);
  }
  ASSERT_EQ(::read(to_parent[0], &byte, 1), 1);
  host.reset();  // the only listener
  EXPECT_EQ(connect_to(place.socket(), soon()).error().kind, ErrorKind::NotFound);
  EXPECT_TRUE(Host::open(host_settings(place.socket())).ok());  // nor does the child hold the lock
  for (const int end : {to_child[0], to_child[1], to_parent[0], to_parent[1]}) ::close(end);
  ::waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace cuvmm::test
