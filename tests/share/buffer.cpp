// SPDX-License-Identifier: Apache-2.0
// What a buffer's grants cost the driver, and what they leave behind.
#include "share/buffer.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "share_world.hpp"
#include "support/fault_sweep.hpp"
#include "support/faulty_driver.hpp"
#include "support/lowered_limit.hpp"

namespace cuvmm::test {
namespace {

using namespace share;
using What = HostEvent::What;

class ShareBuffer : public DriverContract {
 protected:
  const SharePlace place;
  FaultyDriver counting{driver()};

  std::uint64_t exports() const { return counting.count_of("cuMemExportToShareableHandle"); }
  Buffer given_buffer(std::size_t chunks) {
    return NEEDED(Buffer::create(
        counting, {.device = 0, .size = chunks * shared_chunk, .chunk_size = shared_chunk}));
  }
};

// The first export makes the driver open descriptors of its own, so it comes before any count.
int open_descriptors_once_exported(const Buffer& buffer) {
  for (std::size_t i = 0; i < buffer.chunk_count(); ++i) NEEDED(buffer.export_fd(i));
  return open_descriptors();
}

// An importer that fetches every chunk of this many grants, and releases each.
std::thread importer_of(const std::string& path, int grants, std::atomic<int>& failures) {
  return std::thread{[path, grants, &failures] {
    auto session = Session::connect(path, test_token(), in_time());
    for (int i = 0; i < grants; ++i) {
      const auto grant = session.ok() ? session->receive(in_time()) : session.error();
      if (!grant.ok()) return void(++failures);
      for (std::uint32_t first = 0; first < grant->chunks;) {
        const auto batch = session->fetch(*grant, first, in_time());
        if (!batch.ok()) return void(++failures);
        first += static_cast<std::uint32_t>(batch->descriptors.size());
      }
      failures += !session->release(grant->id, in_time()).ok();
    }
  }};
}

void grant_to_importer(const std::string& path, const Buffer& buffer, int grants) {
  const auto host = NEEDED(Host::open(host_settings(path)));
  std::atomic<int> failures{0};
  std::thread importer = importer_of(path, grants, failures);
  const PeerId peer = event_of(*host, What::Came).peer;
  for (int i = 0; i < grants; ++i) {
    NEEDED(
        host->grant(peer, NEEDED(buffer.grant(0, buffer.chunk_count(), GrantAccess::ReadWrite))));
    event_of(*host, What::Released);
  }
  serve_until_all_left(*host);
  importer.join();
  EXPECT_EQ(failures, 0);
}

TEST_F(ShareBuffer, IsExportedOnceForAllItsGrants) {
  const Buffer buffer = given_buffer(3);
  grant_to_importer(place.socket(), buffer, 5);
  EXPECT_EQ(exports(), 3u);
}

TEST_F(ShareBuffer, KeepsNoMoreDescriptorsThanAProcessCanSpare) {
  constexpr auto most = static_cast<std::size_t>(KeptFile::most_kept);
  const Buffer buffer = given_buffer(most + 2);
  const int before = open_descriptors_once_exported(buffer);
  counting.forget_calls();
  grant_to_importer(place.socket(), buffer, 2);
  EXPECT_EQ(open_descriptors() - before, KeptFile::most_kept);
  EXPECT_EQ(exports(), most + 2 * 2);
}

TEST_F(ShareBuffer, IsGrantedThoughTheDriverRefusesAnExportForAMoment) {
  const Buffer buffer = given_buffer(5);
  counting.fail_call(Call::cuMemExportToShareableHandle, 4, CUDA_ERROR_OPERATING_SYSTEM);
  grant_to_importer(place.socket(), buffer, 1);
  EXPECT_EQ(counting.faults(), 1u);
}

TEST_F(ShareBuffer, KeepsAnEighthOfTheDescriptorsThatTheProcessMayOpen) {
  const LoweredLimit limit{RLIMIT_NOFILE, 160};
  const Buffer buffer = given_buffer(24);
  const int before = open_descriptors_once_exported(buffer);
  grant_to_importer(place.socket(), buffer, 1);
  EXPECT_EQ(open_descriptors() - before, 20);
}

TEST_F(ShareBuffer, IsFetchedInPartsByAProcessThatHasFewDescriptorsLeft) {
  constexpr std::uint32_t chunks = 24;
  const Buffer buffer = given_buffer(chunks);
  grant_to_importer(place.socket(), buffer, 1);  // the exporter opens its own here
  const auto host = NEEDED(Host::open(host_settings(place.socket())));
  std::uint32_t fetched = 0;
  int fetches = 0;
  std::thread importer{[&] {
    auto session = NEEDED(Session::connect(place.socket(), test_token(), in_time()));
    const Grant grant = NEEDED(session.receive(in_time()));
    const LoweredLimit limit{RLIMIT_NOFILE, lowest_free_descriptor() + 10};
    for (; fetched < chunks; ++fetches) {
      const auto batch = session.fetch(grant, fetched, in_time());
      if (!batch.ok()) break;
      EXPECT_EQ(batch->sizes.size(), batch->descriptors.size());
      fetched += static_cast<std::uint32_t>(batch->sizes.size());
    }
    const LoweredLimit nothing{RLIMIT_NOFILE, 0};
    EXPECT_EQ(session.fetch(grant, 0, in_time()).error().system_code, EMFILE);
  }};
  NEEDED(host->grant(event_of(*host, What::Came).peer,
                     NEEDED(buffer.grant(0, chunks, GrantAccess::ReadWrite))));
  serve_until_all_left(*host);
  importer.join();
  EXPECT_EQ(fetched, chunks);
  EXPECT_GT(fetches, 1);
}

TEST_F(ShareBuffer, KeepsNoDescriptorsAfterItsEnd) {
  const std::string held = held_by_the_process();
  const int without = open_descriptors();
  {
    const Buffer buffer = given_buffer(2);
    const int before = open_descriptors_once_exported(buffer);
    grant_to_importer(place.socket(), buffer, 1);
    EXPECT_EQ(open_descriptors(), before + 2);
  }
  EXPECT_EQ(open_descriptors(), without);
  EXPECT_EQ(held_by_the_process(), held);
}

TEST_F(ShareBuffer, StaysGrantedAfterItsEnd) {
  std::optional<Granted> granted;
  {
    const Buffer buffer = given_buffer(2);
    granted = NEEDED(buffer.grant(1, 1, GrantAccess::ReadOnly));
  }
  const auto host = NEEDED(Host::open(host_settings(place.socket())));
  std::atomic<int> failures{0};
  std::thread importer = importer_of(place.socket(), 1, failures);
  NEEDED(host->grant(event_of(*host, What::Came).peer, *std::exchange(granted, std::nullopt)));
  serve_until_all_left(*host);
  importer.join();
  EXPECT_EQ(failures, 0);
}

// Otherwise the memory would live as long as the child.
TEST_F(ShareBuffer, LeavesAForkedChildNoDescriptor) {
  const Buffer buffer = given_buffer(2);
  const int before = open_descriptors_once_exported(buffer);
  grant_to_importer(place.socket(), buffer, 1);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(open_descriptors() - before);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// As a program does that closes every file it does not know.
void close_listening_sockets() {
  for (int number = 3; number < 1024; ++number) {
    int listens = 0;
    socklen_t size = sizeof listens;
    const bool is_socket = ::getsockopt(number, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0;
    if (is_socket && listens != 0) ::close(number);
  }
}

TEST_F(ShareBuffer, IsGrantedToNewImportersAfterTheProgramHasClosedTheSocket) {
  const Buffer buffer = given_buffer(2);
  const auto host = NEEDED(Host::open(host_settings(place.socket())));
  close_listening_sockets();
  EXPECT_FALSE(NEEDED(host->wait(Deadline{})).has_value());
  std::atomic<int> failures{0};
  std::thread importer = importer_of(place.socket(), 1, failures);
  NEEDED(host->grant(event_of(*host, What::Came).peer,
                     NEEDED(buffer.grant(0, 2, GrantAccess::ReadWrite))));
  serve_until_all_left(*host);
  importer.join();
  EXPECT_EQ(failures, 0);
}

TEST_F(ShareBuffer, ThatCannotBeExportedIsRefusedAndGrantedLater) {
  const Buffer buffer = given_buffer(1);
  const auto host = NEEDED(Host::open(host_settings(place.socket())));
  std::thread importer{[&] {
    auto session = NEEDED(Session::connect(place.socket(), test_token(), in_time()));
    const Grant grant = NEEDED(session.receive(in_time()));
    counting.fail_call(Call::cuMemExportToShareableHandle, 1, CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_FALSE(session.fetch(grant, 0, in_time()).ok());
    EXPECT_TRUE(session.fetch(grant, 0, in_time()).ok());
  }};
  NEEDED(host->grant(event_of(*host, What::Came).peer,
                     NEEDED(buffer.grant(0, 1, GrantAccess::ReadWrite))));
  serve_until_all_left(*host);
  importer.join();
  EXPECT_EQ(exports(), 2u);
}

}  // namespace
}  // namespace cuvmm::test
