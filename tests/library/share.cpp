// SPDX-License-Identifier: Apache-2.0
// Sharing through the public interface. Here both sides are threads of one process; tests/share has
// two processes, tests/examples two programs.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "cuvmm/cuvmm.h"
#include "cuvmm/cuvmm.hpp"
#include "support/thread_state.hpp"

namespace cuvmm::test {
namespace {

using namespace std::chrono_literals;
constexpr auto in_time = 60s;
constexpr std::uint64_t two_mib = std::uint64_t{2} << 20;

class LibraryShare : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/cuvmm-library-test-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder_ = name;
  }
  void TearDown() override {
    for (const char* file : {"/s", "/s.lock", "/s.token"}) ::unlink((folder_ + file).c_str());
    ::rmdir(folder_.c_str());
  }
  std::string path() const { return folder_ + "/s"; }

 private:
  std::string folder_;
};

template <class T>
T value(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.error().message());
  return std::move(result).value();
}

ShareEvent next(ShareHost& host, cuvmm_share_event_kind kind) {
  for (;;) {
    const ShareEvent event = value(host.wait(in_time));
    if (event.kind == kind) return event;
  }
}

TEST_F(LibraryShare, GrantsPartsThatAreMappedManyTimes) {
  auto host = value(ShareHost::listen(path()));
  auto buffer = value(SharedBuffer::create(0, 4 * two_mib, two_mib));
  EXPECT_NE(value(buffer.map()), 0u);
  EXPECT_FALSE(buffer.map().ok()) << "once";
  EXPECT_EQ(value(buffer.info()).chunk_count, 4u);
  std::thread importer{[&] {
    auto session = value(ShareSession::connect(path(), in_time));
    auto import = value(session.receive(in_time));
    const auto info = value(import.info());
    EXPECT_EQ(info.chunk_count, 2u);
    EXPECT_EQ(info.size, 2 * two_mib);
    EXPECT_EQ(info.tag, 9u);
    EXPECT_EQ(info.access, CUVMM_SHARE_READ_ONLY);
    {
      const auto first = value(import.map(0));
      const auto second = value(import.map(0));
      EXPECT_NE(first.address(), second.address());
    }
    EXPECT_TRUE(session.acknowledge(import, 3, in_time).ok());
    EXPECT_TRUE(session.release(std::move(import), in_time).ok());
  }};
  const auto peer = next(host, CUVMM_SHARE_CAME).peer;
  const auto grant = value(
      host.send(peer, buffer,
                {.first_chunk = 1, .chunk_count = 2, .access = GrantAccess::read_only, .tag = 9}));
  EXPECT_EQ(next(host, CUVMM_SHARE_FETCHED).grant, grant);
  EXPECT_EQ(next(host, CUVMM_SHARE_ACKNOWLEDGED).status, 3u);
  EXPECT_EQ(next(host, CUVMM_SHARE_RELEASED).grant, grant);
  next(host, CUVMM_SHARE_LEFT);
  importer.join();
  EXPECT_EQ(host.send(peer, buffer).error().kind(), ErrorKind::NotFound) << "it has gone";
}

TEST_F(LibraryShare, GrantsPartsOfAPool) {
  auto host = value(ShareHost::listen(path()));
  ElasticPool::Options options;
  options.places.shareable = true;
  auto pool = value(ElasticPool::create(8 * two_mib, options));
  const std::uint64_t granule = pool.granule();
  ASSERT_TRUE(pool.allocate_at(0, 3 * granule).ok());
  ASSERT_TRUE(pool.allocate_at(3 * granule, granule / 2).ok());
  std::thread importer{[&] {
    auto session = value(ShareSession::connect(path(), in_time));
    auto import = value(session.receive(in_time));
    const auto info = value(import.info());
    EXPECT_EQ(info.chunk_count, 2u);
    EXPECT_EQ(info.size, 2 * granule);
    EXPECT_EQ(info.access, CUVMM_SHARE_READ_ONLY);
    EXPECT_NE(value(import.map(0)).address(), 0u);
    EXPECT_TRUE(session.release(std::move(import), in_time).ok());
  }};
  const auto peer = next(host, CUVMM_SHARE_CAME).peer;
  const auto refused = [&](std::uint64_t offset, std::uint64_t size, const Grant& grant = {}) {
    return host.send(peer, pool, offset, size, grant).error().kind();
  };
  EXPECT_EQ(refused(0, granule / 2), ErrorKind::InvalidOffset) << "part of a granule";
  EXPECT_EQ(refused(0, 100 * granule), ErrorKind::InvalidOffset) << "beyond the pool";
  EXPECT_EQ(refused(3 * granule, granule), ErrorKind::NotMapped) << "allocated in part";
  EXPECT_EQ(refused(0, granule, {.first_chunk = 1}), ErrorKind::InvalidArgument);
  const auto grant =
      value(host.send(peer, pool, granule, 2 * granule, {.access = GrantAccess::read_only}));
  EXPECT_EQ(next(host, CUVMM_SHARE_RELEASED).grant, grant);
  next(host, CUVMM_SHARE_LEFT);
  importer.join();

  auto closed = value(ElasticPool::create(two_mib));
  ASSERT_TRUE(closed.allocate_at(0, two_mib).ok());
  EXPECT_EQ(host.send(peer, closed, 0, two_mib).error().kind(), ErrorKind::NotSupported);
}

TEST_F(LibraryShare, CountsAgainstTheDeviceUntilItsEnd) {
  const auto before = value(device_info(0)).physical_in_use;
  {
    const auto buffer = value(SharedBuffer::create(0, 3 * two_mib));
    EXPECT_EQ(value(device_info(0)).physical_in_use, before + value(buffer.info()).size);
  }
  EXPECT_EQ(value(device_info(0)).physical_in_use, before);
}

TEST_F(LibraryShare, OneExporterListensAtAPlace) {
  const auto host = value(ShareHost::listen(path()));
  const auto second = ShareHost::listen(path());
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().kind(), ErrorKind::AlreadyExists);
  EXPECT_NE(std::string{second.error().message()}.find(path()), std::string::npos)
      << second.error().message();
}

TEST_F(LibraryShare, RefusalsNameThePath) {
  const std::string missing = path() + "/no/such";
  for (int i = 0; i < 3; ++i) {
    const auto listens = ShareHost::listen(missing);
    ASSERT_FALSE(listens.ok());
    EXPECT_NE(std::string{listens.error().message()}.find(missing), std::string::npos)
        << listens.error().message();
    const auto connects = ShareSession::connect(missing, 10ms);
    ASSERT_FALSE(connects.ok());
    EXPECT_NE(std::string{connects.error().message()}.find(missing), std::string::npos)
        << connects.error().message();
  }
}

TEST_F(LibraryShare, WaitsTimeOut) {
  EXPECT_EQ(ShareSession::connect(path(), 10ms).error().kind(), ErrorKind::NotFound);
  auto host = value(ShareHost::listen(path()));
  EXPECT_EQ(host.wait(10ms).error().kind(), ErrorKind::TimedOut);
  EXPECT_EQ(ShareSession::connect(path(), 10ms).error().kind(), ErrorKind::TimedOut)
      << "nobody gives the host time";
}

// An exporter serves its importers only while it waits.
TEST_F(LibraryShare, AGrantThatCannotBeFetchedInTimeIsReceivedLater) {
  auto host = value(ShareHost::listen(path()));
  auto buffer = value(SharedBuffer::create(0, 2 * two_mib, two_mib));
  std::atomic<bool> is_granted{false};
  std::atomic<bool> may_serve{false};
  std::thread importer{[&] {
    auto session = value(ShareSession::connect(path(), in_time));
    while (!is_granted) std::this_thread::yield();
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(session.receive(50ms).error().kind(), ErrorKind::TimedOut);
    }
    may_serve = true;
    for (int i = 0; i < 2; ++i) {
      auto import = value(session.receive(in_time));
      EXPECT_EQ(value(import.info()).chunk_count, 2u);
      EXPECT_EQ(value(import.info()).tag, static_cast<std::uint64_t>(i));
      EXPECT_TRUE(session.release(std::move(import), in_time).ok());
    }
  }};
  const auto peer = next(host, CUVMM_SHARE_CAME).peer;
  for (std::uint64_t tag = 0; tag < 2; ++tag) value(host.send(peer, buffer, {.tag = tag}));
  is_granted = true;
  while (!may_serve) std::this_thread::yield();
  for (int i = 0; i < 2; ++i) next(host, CUVMM_SHARE_RELEASED);
  importer.join();
}

TEST_F(LibraryShare, GrantsBeyondTheSocketsRoomAreRefusedAndCostNoneOfTheOthers) {
  auto host = value(ShareHost::listen(path()));
  auto buffer = value(SharedBuffer::create(0, two_mib));
  constexpr int more_than_fit = 20'000;
  std::atomic<int> sent{0};
  std::thread importer{[&] {
    auto session = value(ShareSession::connect(path(), in_time));
    while (sent == 0) std::this_thread::yield();
    for (int i = 0; i < sent; ++i) {
      auto import = value(session.receive(in_time));
      EXPECT_TRUE(session.release(std::move(import), in_time).ok());
    }
  }};
  const auto peer = next(host, CUVMM_SHARE_CAME).peer;
  int fitted = 0;
  while (fitted < more_than_fit) {
    const auto grant = host.send(peer, buffer);
    if (!grant.ok()) {
      EXPECT_EQ(grant.error().kind(), ErrorKind::TimedOut) << grant.error().message();
      break;
    }
    ++fitted;
  }
  EXPECT_LT(fitted, more_than_fit);
  sent = fitted;
  for (int i = 0; i < fitted; ++i) next(host, CUVMM_SHARE_RELEASED);
  importer.join();
}

TEST_F(LibraryShare, AFileThatIsNoSocketIsNotReplaced) {
  for (const char* const other : {"", ".token"}) {
    const std::string file = path() + other;
    std::ofstream{file} << "somebody's data, longer than a token";
    const auto host = ShareHost::listen(path());
    ASSERT_FALSE(host.ok());
    EXPECT_EQ(host.error().kind(), ErrorKind::AlreadyExists);
    std::string first;
    EXPECT_TRUE(std::ifstream{file} >> first);
    EXPECT_EQ(first, "somebody's");
    ::unlink(file.c_str());
  }
  EXPECT_TRUE(ShareHost::listen(path()).ok());
}

// The thread tells its number just before it begins a call that waits. No call may begin with an
// object that has ended.
void wait_until_inside_call(const std::atomic<pid_t>& thread) {
  while (thread == 0 || !is_asleep(thread)) std::this_thread::sleep_for(1ms);
}

// The program ends an object while another thread still waits with it.
TEST_F(LibraryShare, AWaitEndsWithItsObject) {
  cuvmm_error error{};
  cuvmm_share_host* host = nullptr;
  ASSERT_EQ(cuvmm_share_listen(path().c_str(), &host, &error), CUVMM_OK) << error.message;
  constexpr std::uint64_t an_hour = 3'600'000'000;
  std::atomic<pid_t> serving{0};
  std::thread serves{[&serving, host] {
    cuvmm_error why{};
    for (;;) {
      cuvmm_share_event event{};
      const cuvmm_status status = cuvmm_share_wait(host, an_hour, &event, &why);
      if (event.kind == CUVMM_SHARE_LEFT) serving = ::gettid();
      if (status == CUVMM_OK) continue;
      EXPECT_EQ(status, CUVMM_ERROR_TIMED_OUT) << why.message;
      return;
    }
  }};
  cuvmm_share_session* session = nullptr;
  ASSERT_EQ(cuvmm_share_connect(path().c_str(), an_hour, &session, &error), CUVMM_OK);
  std::atomic<pid_t> receiving{0};
  std::thread receives{[&receiving, session] {
    cuvmm_error why{};
    cuvmm_shared_import* import = nullptr;
    receiving = ::gettid();
    EXPECT_NE(cuvmm_share_receive(session, an_hour, &import, &why), CUVMM_OK);
  }};
  wait_until_inside_call(receiving);
  EXPECT_EQ(cuvmm_share_disconnect(session, &error), CUVMM_OK);
  receives.join();
  wait_until_inside_call(serving);
  EXPECT_EQ(cuvmm_share_stop(host, &error), CUVMM_OK);
  serves.join();
}

TEST_F(LibraryShare, RefusesInvalidArguments) {
  EXPECT_EQ(SharedBuffer::create(0, 0).error().kind(), ErrorKind::InvalidArgument);
  EXPECT_EQ(SharedBuffer::create(0, two_mib, 3).error().kind(), ErrorKind::InvalidArgument);
  EXPECT_EQ(SharedBuffer::create(1000, two_mib).error().kind(), ErrorKind::NotSupported);
  auto host = value(ShareHost::listen(path()));
  const auto buffer = value(SharedBuffer::create(0, two_mib));
  EXPECT_EQ(host.send(1, buffer, {.first_chunk = 1}).error().kind(), ErrorKind::InvalidArgument);
  EXPECT_EQ(host.send(1, buffer, {.chunk_count = 2}).error().kind(), ErrorKind::InvalidArgument);
  EXPECT_EQ(host.send(1, buffer).error().kind(), ErrorKind::NotFound);
  cuvmm_shared_buffer_options options{};
  options.size = two_mib;
  options.reserved[0] = 1;
  cuvmm_shared_buffer* made = nullptr;
  EXPECT_EQ(cuvmm_shared_buffer_create(&options, &made, nullptr), CUVMM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(made, nullptr);
}

TEST_F(LibraryShare, ToleratesMissingPointers) {
  EXPECT_EQ(cuvmm_shared_buffer_create(nullptr, nullptr, nullptr), CUVMM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(cuvmm_share_listen(nullptr, nullptr, nullptr), CUVMM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(cuvmm_share_receive(nullptr, 0, nullptr, nullptr), CUVMM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(cuvmm_share_release(nullptr, nullptr, 0, nullptr), CUVMM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(cuvmm_shared_buffer_destroy(nullptr, nullptr), CUVMM_OK);
  EXPECT_EQ(cuvmm_share_stop(nullptr, nullptr), CUVMM_OK);
  EXPECT_EQ(cuvmm_share_disconnect(nullptr, nullptr), CUVMM_OK);
}

}  // namespace
}  // namespace cuvmm::test
