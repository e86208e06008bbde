// SPDX-License-Identifier: Apache-2.0
// Many importers at once, and what newly started programs inherit.
#include <dirent.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "share/buffer.hpp"
#include "share_world.hpp"
#include "support/memory.hpp"

namespace cuvmm::test {
namespace {

using namespace share;
using What = HostEvent::What;

class ShareMany : public DriverContract {
 protected:
  const SharePlace place;
};

constexpr int importers = 200;

// Like importers in separate processes: each has its own connection.
TEST_F(ShareMany, ImportersAreAllServedAtOnce) {
  const auto host = NEEDED(Host::open(host_settings(place.socket())));
  const auto chunks = given_chunks(1, 17);
  std::atomic<int> served{0};
  std::vector<std::thread> threads;
  threads.reserve(importers);
  for (int i = 0; i < importers; ++i) {
    threads.emplace_back([&] {
      auto session = Session::connect(place.socket(), test_token(), in_time());
      if (!session.ok()) return;
      const auto grant = session->receive(in_time());
      if (!grant.ok()) return;
      const auto batch = session->fetch(*grant, 0, in_time());
      if (!batch.ok() || batch->descriptors.size() != 1) return;
      if (!session->acknowledge(*grant, 0, in_time()).ok()) return;
      if (session->release(grant->id, in_time()).ok()) ++served;
    });
  }
  int released = 0;
  std::size_t most_at_once = 0;
  const auto until = in_time();
  while (released < importers && !until.is_over()) {
    const auto event = NEEDED(host->wait(soon()));
    if (!event) continue;
    if (event->what == What::Came) {
      NEEDED(host->grant(event->peer, {.chunks = chunks, .offset = 0, .size = shared_chunk}));
    }
    released += event->what == What::Released ? 1 : 0;
    most_at_once = std::max(most_at_once, host->peers());
  }
  for (std::thread& thread : threads) thread.join();
  serve_until_all_left(*host);
  EXPECT_EQ(served.load(), importers);
  EXPECT_GT(most_at_once, 1u);
  EXPECT_EQ(host->peers(), 0u);
  EXPECT_TRUE(chunks.front().is_sole());
}

CHILD_ROLE(imports_with_others) {
  PrimaryContext context;
  Session session = NEEDED(Session::connect(arguments.at(0), test_token(), in_time()));
  const Grant grant = NEEDED(session.receive(in_time()));
  {
    const Imported imported = NEEDED(Imported::fetch(driver(), session, grant, in_time()));
    const auto mapped = NEEDED(MappedGrant::map(driver(), imported, AccessSet::of(0)));
    expect_pattern(mapped.address(), mapped.size(), 18);
  }
  NEEDED_OK(session.release(grant.id, in_time()));
}

TEST_F(ShareMany, ProcessesHaveTheSameMemory) {
  constexpr int processes = 8;
  const auto host = NEEDED(Host::open(host_settings(place.socket())));
  const auto chunks = given_chunks(2, 18);
  std::vector<std::unique_ptr<Child>> children;
  children.reserve(processes);
  for (int i = 0; i < processes; ++i) {
    children.push_back(
        std::make_unique<Child>("imports_with_others", std::vector<std::string>{place.socket()}));
  }
  for (int came = 0, left = 0; left < processes;) {
    const auto event = NEEDED(host->wait(in_time()));
    ASSERT_TRUE(event.has_value()) << came << " came";
    if (event->what == What::Came) {
      ++came;
      NEEDED(host->grant(event->peer, {.chunks = chunks, .offset = 0, .size = 2 * shared_chunk}));
    }
    left += event->what == What::Left ? 1 : 0;
  }
  for (const auto& child : children) EXPECT_EQ(child->wait(), 0);
}

// The started program lists the descriptors that it inherited: the listing's own, and 0 to 2.
TEST_F(ShareMany, DescriptorsStayOutOfStartedPrograms) {
  const auto host = NEEDED(Host::open(host_settings(place.socket())));
  const Buffer buffer = NEEDED(Buffer::create(driver(), {.device = 0, .size = shared_chunk}));
  std::thread importer{[&] {
    auto session = Session::connect(place.socket(), test_token(), in_time());
    ASSERT_TRUE(session.ok());
    const auto grant = session->receive(in_time());
    ASSERT_TRUE(grant.ok());
    const auto batch = session->fetch(*grant, 0, in_time());
    ASSERT_TRUE(batch.ok());
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);  // inherited on purpose: the list comes through it
    // By its path, since a shell accepts no descriptor of two digits.
    std::string command =
        "ls -l /proc/self/fd | grep -c 'socket:\\|memfd:\\|nvidia' >/proc/self/fd/" +
        std::to_string(ends[1]);
    char shell[] = "/bin/sh";
    char option[] = "-c";
    char* const words[] = {shell, option, command.data(), nullptr};
    pid_t child = 0;
    ASSERT_EQ(::posix_spawn(&child, shell, nullptr, nullptr, words, environ), 0);
    ::close(ends[1]);
    std::string count;
    char byte = 0;
    while (::read(ends[0], &byte, 1) == 1) count += byte;
    ::close(ends[0]);
    ::waitpid(child, nullptr, 0);
    EXPECT_EQ(count, "0\n");
  }};
  const PeerId peer = event_of(*host, What::Came).peer;
  NEEDED(host->grant(peer, NEEDED(buffer.grant(0, 1, GrantAccess::ReadWrite))));
  event_of(*host, What::Left);
  importer.join();
}

}  // namespace
}  // namespace cuvmm::test
