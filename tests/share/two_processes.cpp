// SPDX-License-Identifier: Apache-2.0
// Memory that another process imports, and what happens to it when either process dies.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>

#include "share_world.hpp"
#include "support/fault_sweep.hpp"
#include "support/memory.hpp"

namespace cuvmm::test {
namespace {

using namespace share;
using What = HostEvent::What;

class ShareMemory : public DriverContract {
 protected:
  void TearDown() override {
    EXPECT_EQ(retry_releases(), 0u);
    DriverContract::TearDown();
  }
  const SharePlace place;
};

Session connected(const std::string& path) {
  return NEEDED(Session::connect(path, test_token(), in_time()));
}

CHILD_ROLE(imports_and_writes) {
  PrimaryContext context;
  Session session = connected(arguments.at(0));
  const Grant grant = NEEDED(session.receive(in_time()));
  {
    const Imported imported = NEEDED(Imported::fetch(driver(), session, grant, in_time()));
    const auto first = NEEDED(MappedGrant::map(driver(), imported, AccessSet::of(0)));
    const auto second = NEEDED(MappedGrant::map(driver(), imported, AccessSet::of(0)));
    EXPECT_NE(first.address(), second.address());
    expect_pattern(first.address(), first.size(), 11);
    fill_pattern(second.address(), second.size(), 12);
    GIVEN(synchronize());
  }
  NEEDED_OK(session.acknowledge(grant, 5, in_time()));
  NEEDED_OK(session.release(grant.id, in_time()));
}

TEST_F(ShareMemory, IsTheSameInAnotherProcess) {
  const auto host = NEEDED(Host::open(host_settings(place.socket())));
  const auto chunks = given_chunks(3, 11);
  Child child{"imports_and_writes", {place.socket()}};
  const PeerId peer = event_of(*host, What::Came).peer;
  NEEDED(host->grant(peer, {.chunks = chunks, .offset = 0, .size = 3 * shared_chunk, .tag = 1}));
  EXPECT_EQ(event_of(*host, What::Acknowledged).status, 5u);
  EXPECT_EQ(event_of(*host, What::Released).peer, peer);
  EXPECT_EQ(host->grants(), 0u);
  serve_until_all_left(*host);
  ASSERT_EQ(child.wait(), 0);

  const Reservation there = NEEDED(Reservation::create(driver(), 3 * shared_chunk, shared_chunk));
  Mapping mapping = Mapping::of(there);
  MapPlan plan;
  for (Size i = 0; i < 3; ++i) plan.map(mapping, i * shared_chunk, chunks[i], AccessSet::of(0));
  ASSERT_TRUE(plan.commit().ok());
  expect_pattern(there.address(), 3 * shared_chunk, 12);
}

CHILD_ROLE(imports_for_reading) {
  PrimaryContext context;
  Session session = connected(arguments.at(0));
  const Grant grant = NEEDED(session.receive(in_time()));
  const Imported imported = NEEDED(Imported::fetch(driver(), session, grant, in_time()));
  const auto mapped = NEEDED(MappedGrant::map(driver(), imported, AccessSet::of(0)));
  EXPECT_EQ(mapped.size(), shared_chunk);
  EXPECT_EQ(rights(mapped.address()), CU_MEM_ACCESS_FLAGS_PROT_READ);
  std::uint32_t word = 0;
  EXPECT_CUDA(driver().cuMemcpyDtoH(&word, mapped.address(), sizeof word));
  EXPECT_NE(driver().cuMemcpyHtoD(mapped.address(), &word, sizeof word), CUDA_SUCCESS);
}

TEST_F(ShareMemory, GrantedForReadingIsMappedForReading) {
  const auto host = NEEDED(Host::open(host_settings(place.socket())));
  const auto chunks = given_chunks(2, 13);
  Child child{"imports_for_reading", {place.socket()}};
  const PeerId peer = event_of(*host, What::Came).peer;
  // The second of two chunks: a part consists of whole chunks.
  NEEDED(host->grant(
      peer,
      {.chunks = {chunks[1]}, .offset = 0, .size = shared_chunk, .access = GrantAccess::ReadOnly}));
  serve_until_all_left(*host);
  EXPECT_EQ(child.wait(), 0);
}

// More chunks than descriptors fit into one packet.
CHILD_ROLE(imports_many) {
  PrimaryContext context;
  Session session = connected(arguments.at(0));
  const Grant grant = NEEDED(session.receive(in_time()));
  const Imported imported = NEEDED(Imported::fetch(driver(), session, grant, in_time()));
  EXPECT_EQ(imported.chunks().size(), 300u);
  const auto mapped = NEEDED(MappedGrant::map(driver(), imported, AccessSet::of(0)));
  expect_pattern(mapped.address() + 299 * shared_chunk, shared_chunk / 16, 14);
}

TEST_F(ShareMemory, OfManyChunksComesInSeveralPackets) {
  const auto host = NEEDED(Host::open(host_settings(place.socket())));
  std::vector<ChunkRef> chunks = given_chunks(1, 13);
  const ChunkRef last = given_chunks(1, 14).front();
  chunks.resize(299, chunks.front());
  chunks.push_back(last);
  Child child{"imports_many", {place.socket()}};
  const PeerId peer = event_of(*host, What::Came).peer;
  NEEDED(host->grant(peer, {.chunks = chunks, .offset = 0, .size = 300 * shared_chunk}));
  event_of(*host, What::Fetched);
  serve_until_all_left(*host);
  EXPECT_EQ(child.wait(), 0);
}

// The steps of an importer; it may die at each.
enum class ImporterStep : int { Connected, Known, Granted, Fetched, Mapped, Said, Released, None };

void die_at(const ChildArguments& arguments, ImporterStep step) {
  if (std::stoi(arguments.at(1)) == static_cast<int>(step)) ::raise(SIGKILL);
}

CHILD_ROLE(imports_and_dies) {
  PrimaryContext context;
  {
    const Fd stranger = NEEDED(connect_to(arguments.at(0), in_time()));
    die_at(arguments, ImporterStep::Connected);
  }
  Session session = connected(arguments.at(0));
  die_at(arguments, ImporterStep::Known);
  const Grant grant = NEEDED(session.receive(in_time()));
  die_at(arguments, ImporterStep::Granted);
  {
    const Imported imported = NEEDED(Imported::fetch(driver(), session, grant, in_time()));
    die_at(arguments, ImporterStep::Fetched);
    const auto mapped = NEEDED(MappedGrant::map(driver(), imported, AccessSet::of(0)));
    die_at(arguments, ImporterStep::Mapped);
    NEEDED_OK(session.acknowledge(grant, 0, in_time()));
    die_at(arguments, ImporterStep::Said);
  }
  NEEDED_OK(session.release(grant.id, in_time()));
  die_at(arguments, ImporterStep::Released);
}

TEST_F(ShareMemory, OutlivesImportersThatDieAtAnyStep) {
  const auto host = NEEDED(Host::open(host_settings(place.socket())));
  const auto chunks = given_chunks(1, 15);
  for (int step = 0; step <= static_cast<int>(ImporterStep::None); ++step) {
    SCOPED_TRACE("dies at step " + std::to_string(step));
    Child child{"imports_and_dies", {place.socket(), std::to_string(step)}};
    int status = Child::timed_out;
    const auto until = in_time();
    while (status == Child::timed_out && !until.is_over()) {
      const auto event = NEEDED(host->wait(Deadline::after(std::chrono::milliseconds{20})));
      if (event && event->what == What::Came) {
        (void)host->grant(event->peer, {.chunks = chunks, .offset = 0, .size = shared_chunk});
      }
      status = child.wait(std::chrono::milliseconds{1});
    }
    EXPECT_EQ(status, step == static_cast<int>(ImporterStep::None) ? 0 : 128 + SIGKILL);
    serve_until_all_left(*host);
    EXPECT_EQ(host->peers(), 0u);
    EXPECT_EQ(host->grants(), 0u);
    EXPECT_TRUE(chunks.front().is_sole()) << "somebody still refers to the chunk";
  }
}

// The steps of an exporter.
enum class ExporterStep : int { Listening, Came, Granted, Fetched, Stopped, None };

CHILD_ROLE(exports_and_dies) {
  PrimaryContext context;
  const auto at = [&](ExporterStep step) {
    return std::stoi(arguments.at(1)) == static_cast<int>(step);
  };
  const auto host = NEEDED(Host::open(host_settings(arguments.at(0))));
  const auto granted = given_granted(1, 16);
  link.signal();
  if (at(ExporterStep::Listening)) {
    link.wait_for_signal();  // an importer is on its way
    ::raise(SIGKILL);
  }
  if (at(ExporterStep::Stopped)) ::raise(SIGSTOP);
  const PeerId peer = event_of(*host, What::Came).peer;
  if (at(ExporterStep::Came)) ::raise(SIGKILL);
  NEEDED(host->grant(peer, granted));
  if (at(ExporterStep::Granted)) ::raise(SIGKILL);
  event_of(*host, What::Fetched);
  if (at(ExporterStep::Fetched)) ::raise(SIGKILL);
  serve_until_all_left(*host);
}

// An importer's outcome in words: the step at which it met the exporter's death.
std::string import_all(const std::string& path, Deadline until) {
  auto session = Session::connect(path, test_token(), until);
  if (!session.ok()) return "connect";
  const auto grant = session->receive(until);
  if (!grant.ok()) return "receive";
  {
    const auto imported = Imported::fetch(driver(), *session, *grant, until);
    if (!imported.ok()) return "fetch";
    const auto mapped = MappedGrant::map(driver(), *imported, AccessSet::of(0));
    if (!mapped.ok()) return "map";
    expect_pattern(mapped->address(), mapped->size(), 16);  // whether its owner lives or not
  }
  if (!session->release(grant->id, until).ok()) return "release";
  return "all";
}

TEST_F(ShareMemory, OfExportersThatDieAtAnyStepIsRefusedOrStays) {
  const std::vector<std::pair<ExporterStep, std::vector<std::string>>> expected = {
      {ExporterStep::Listening, {"connect"}},        {ExporterStep::Came, {"connect", "receive"}},
      {ExporterStep::Granted, {"receive", "fetch"}}, {ExporterStep::Fetched, {"fetch", "release"}},
      {ExporterStep::Stopped, {"connect"}},          {ExporterStep::None, {"all"}}};
  for (const auto& [step, outcomes] : expected) {
    SCOPED_TRACE("dies at step " + std::to_string(static_cast<int>(step)));
    const std::string held = held_by_the_process();
    // The same socket each time, whatever the previous exporter left there.
    Child child{"exports_and_dies", {place.socket(), std::to_string(static_cast<int>(step))}};
    child.link().wait_for_signal();
    if (step == ExporterStep::Listening) child.link().signal();
    const std::uint64_t began = now_us();
    const bool stays_silent = step == ExporterStep::Stopped;
    const std::string outcome = import_all(
        place.socket(), stays_silent ? Deadline::after(std::chrono::seconds{2}) : in_time());
    EXPECT_LT(now_us() - began, 30'000'000u) << "a death is noticed before any wait is over";
    EXPECT_NE(std::find(outcomes.begin(), outcomes.end(), outcome), outcomes.end()) << outcome;
    EXPECT_EQ(held_by_the_process(), held);
    if (step == ExporterStep::None) {
      EXPECT_EQ(child.wait(), 0);
    }
  }
}

}  // namespace
}  // namespace cuvmm::test
