// SPDX-License-Identifier: Apache-2.0
#include "share_world.hpp"

#include <dirent.h>

#include <cstdlib>
#include <filesystem>

#include "support/memory.hpp"

namespace cuvmm::test {

SharePlace::SharePlace() {
  char name[] = "/tmp/cuvmm-share-test-XXXXXX";
  const char* const made = ::mkdtemp(name);
  if (made == nullptr) throw std::runtime_error("no folder for sockets");
  folder_ = made;
}

SharePlace::~SharePlace() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

share::Token test_token(std::uint8_t first) {
  share::Token token;
  for (std::size_t i = 0; i < token.bytes.size(); ++i) {
    token.bytes[i] = static_cast<std::uint8_t>(first + i);
  }
  return token;
}

share::HostSettings host_settings(const std::string& path) {
  share::HostSettings settings;
  settings.path = path;
  settings.token = test_token();
  settings.patience = std::chrono::seconds{20};  // a busy machine may hold up a greeting
  return settings;
}

std::string said(const Result<void>& result) {
  return result.ok() ? "ok" : result.error().text();
}

std::vector<ChunkRef> given_chunks(std::size_t count, std::uint32_t seed) {
  std::vector<ChunkRef> chunks;
  for (std::size_t i = 0; i < count; ++i) {
    chunks.push_back(ChunkRef::adopt(
        NEEDED(Chunk::create(driver(), shared_chunk, Location::device(0), Export::Yes))));
  }
  const Reservation place =
      NEEDED(Reservation::create(driver(), count * shared_chunk, shared_chunk));
  Mapping mapping = Mapping::of(place);
  MapPlan plan;
  for (std::size_t i = 0; i < count; ++i) {
    plan.map(mapping, i * shared_chunk, chunks[i], AccessSet::of(0));
  }
  if (!plan.commit().ok()) throw std::runtime_error("cannot map");
  fill_pattern(place.address(), count * shared_chunk, seed);
  GIVEN(synchronize());
  return chunks;
}

share::Granted given_granted(std::size_t chunks, std::uint32_t seed) {
  return {.chunks = given_chunks(chunks, seed), .offset = 0, .size = chunks * shared_chunk};
}

int open_descriptors() {
  DIR* const all = ::opendir("/proc/self/fd");
  int count = 0;
  while (::readdir(all) != nullptr) ++count;
  ::closedir(all);
  return count;
}

share::HostEvent event_of(share::Host& host, share::HostEvent::What what) {
  const auto until = in_time();
  while (const auto event = NEEDED(host.wait(until))) {
    if (event->what == what) return *event;
  }
  throw std::runtime_error("the event did not come");
}

void serve_until_all_left(share::Host& host) {
  const auto until = in_time();
  // The last wait may let in an importer that has died meanwhile.
  do {
    while (host.peers() != 0 && !until.is_over()) NEEDED(host.wait(soon()));
    while (NEEDED(host.wait(share::Deadline{}))) {
    }
  } while (host.peers() != 0 && !until.is_over());
}

void expect_shared_pattern(CUdeviceptr address, Size size, std::uint32_t seed) {
  expect_pattern(address, size, seed);
}

}  // namespace cuvmm::test
