// SPDX-License-Identifier: Apache-2.0
// The messages that may be sent, and that nothing else is ever taken for one.
#include "share/message.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "share_world.hpp"

namespace cuvmm::test {
namespace {

using namespace share;
using Bytes = std::vector<std::byte>;

Bytes encoded(const Message& message) {
  std::array<std::byte, longest_packet> room;
  const auto bytes = encode(message, room);
  return {bytes.begin(), bytes.end()};
}

std::size_t chunks_of(const Message& message) {
  const auto* chunks = std::get_if<Chunks>(&message);
  return chunks != nullptr ? chunks->sizes.size() : 0;
}

std::vector<Message> one_of_each() {
  return {Hello{test_token()},
          Welcome{.process = 7},
          Ask{.memory = 9, .secret = test_token(3)},
          Grant{.id = 1,
                .total = 4 * MiB,
                .offset = 512,
                .size = MiB,
                .chunks = 2,
                .access = GrantAccess::ReadOnly,
                .tag = 77},
          Fetch{.grant = 1, .first = 1},
          Chunks{.grant = 1, .first = 0, .sizes = {2 * MiB, 2 * MiB}},
          Acknowledge{.grant = 1, .status = 3},
          Release{1},
          Released{1},
          Refused{.why = Refusal::Freed}};
}

TEST(ShareMessage, RoundTrips) {
  for (const Message& message : one_of_each()) {
    const Bytes bytes = encoded(message);
    const auto read = decode(bytes, chunks_of(message));
    ASSERT_TRUE(read.ok()) << message.index() << ": " << said(read);
    EXPECT_EQ(read->index(), message.index());
    EXPECT_EQ(encoded(*read), bytes);
  }
  EXPECT_EQ(one_of_each().size(), std::variant_size_v<Message>) << "one is missing above";
}

TEST(ShareMessage, OfAnyOtherLengthIsRefused) {
  for (const Message& message : one_of_each()) {
    const Bytes bytes = encoded(message);
    const std::size_t descriptors = chunks_of(message);
    for (std::size_t length = 0; length < bytes.size(); ++length) {
      EXPECT_FALSE(decode(std::span{bytes}.first(length), descriptors).ok()) << length;
    }
    Bytes longer = bytes;
    longer.push_back(std::byte{0});
    EXPECT_FALSE(decode(longer, descriptors).ok());
  }
}

TEST(ShareMessage, WithMoreOrFewerDescriptorsThanItSaysIsRefused) {
  for (const Message& message : one_of_each()) {
    const Bytes bytes = encoded(message);
    EXPECT_FALSE(decode(bytes, chunks_of(message) + 1).ok());
  }
  const Message chunks = Chunks{.grant = 1, .first = 0, .sizes = {MiB}};
  EXPECT_FALSE(decode(encoded(chunks), 0).ok());
}

TEST(ShareMessage, OfAnotherVersionIsReportedAsSuch) {
  Bytes bytes = encoded(Hello{test_token()});
  bytes[4] = std::byte{protocol_version + 1};
  const auto read = decode(bytes, 0);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().kind, ErrorKind::NotAvailable);
}

TEST(ShareMessage, ThatGrantsBeyondItsChunksIsRefused) {
  Grant grant{.id = 1, .total = 4 * MiB, .offset = 3 * MiB, .size = 2 * MiB, .chunks = 2};
  EXPECT_FALSE(decode(encoded(grant), 0).ok());
  grant.offset = ~Size{0};
  EXPECT_FALSE(decode(encoded(grant), 0).ok());
  grant = {.id = 1, .total = 4 * MiB, .offset = 0, .size = MiB, .chunks = most_chunks + 1};
  EXPECT_FALSE(decode(encoded(grant), 0).ok());
}

// Bytes that decode encode to the same bytes, whatever they are.
void expect_sound(std::span<const std::byte> bytes, std::size_t descriptors) {
  const auto read = decode(bytes, descriptors);
  if (!read.ok()) return;
  EXPECT_EQ(chunks_of(*read), descriptors);
  EXPECT_EQ(encoded(*read), Bytes(bytes.begin(), bytes.end()));
}

// The fuzzer's corpus, and mutations of it with some bits changed.
TEST(ShareMessage, OfTheFuzzersCorpusOrAMutationIsHarmless) {
  std::vector<Bytes> corpus;
  const std::filesystem::path folder = CUVMM_SOURCE_DIR "/tests/fuzz/share_message";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file{entry.path(), std::ios::binary};
    const std::string text{std::istreambuf_iterator<char>{file}, {}};
    Bytes bytes(text.size());
    std::memcpy(bytes.data(), text.data(), text.size());
    corpus.push_back(std::move(bytes));
  }
  ASSERT_GE(corpus.size(), std::variant_size_v<Message>) << "no corpus in " << folder;
  std::mt19937 random{20};
  for (const Bytes& bytes : corpus) {
    ASSERT_FALSE(bytes.empty());
    const std::span packet = std::span{bytes}.subspan(1);
    const auto descriptors = static_cast<std::size_t>(bytes[0]);
    expect_sound(packet, descriptors);
    for (int round = 0; round < 20'000; ++round) {
      Bytes changed(packet.begin(), packet.end());
      for (int changes = static_cast<int>(random() % 4); changes >= 0; --changes) {
        if (changed.empty()) break;
        changed[random() % changed.size()] = static_cast<std::byte>(random());
      }
      if (random() % 8 == 0) changed.resize(random() % (longest_packet + 64));
      expect_sound(changed, random() % 4 == 0 ? random() % 300 : descriptors);
    }
  }
}

}  // namespace
}  // namespace cuvmm::test
