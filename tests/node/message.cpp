// SPDX-License-Identifier: Apache-2.0
// The messages that client and service may send, and that nothing else is ever taken for one.
#include "node/observer_message.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "support/scale.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace cuvmm::test {
namespace {

using namespace node;
using Bytes = std::vector<std::byte>;

constexpr PlaceUuid uuid{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

std::vector<NodeMessage> one_of_each() {
  return {
      Greeting{.name = "trainer", .group = "job 7"},
      HeldAlready{uuid, 5 * GiB},
      LeaseAsk{.request = 3, .place = uuid, .bytes = 2 * GiB},
      LeaseReturn{uuid, GiB},
      UseReport{.place = uuid, .cache = 1, .cold = 2, .is_idle = true},
      ReclaimAnswer{.revision = 9,
                    .place = uuid,
                    .outcome = ReclaimOutcome::Refused,
                    .returned = node::unlimited},
      OutlastedTurn{250'000},
      Accepted{.version = 1, .weight = 3, .priority = -7},
      Rejected{.why = Rejection::GuaranteesDoNotFit, .text = "guarantees add up to 101 GiB"},
      PlaceTerms{.place = uuid, .guarantee = GiB},
      LeaseGrant{3},
      LeaseRefusal{.request = 3,
                   .why = RefusalReason::TookTooLong,
                   .free = 1,
                   .foreign = 2,
                   .holders = {{77, 3, 4, "server"}, {0, 5, 6, ""}}},
      ReclaimDemand{
          .revision = 9, .place = uuid, .step = ReclaimStep::Pause, .bytes = 7, .within = 200'000},
      TurnNotice{true, 100'000},
      TurnsOff{uuid, 10'000'000},
      LeaseCancel{3},
      TimeWish{30},
      TimeNews{},
      TimeBoard{},
      PausesWithGroup{},
      PauseWithGroup{9},
      StandsStill{9, true, 4},
      NextGroupStep{9, GroupStep::Move},
      YieldsToForeground{},
      ForegroundBoard{3},
      SharesHandles{{uuid, {7, 8, 9}}},
      WorkDeadline{7, 250'000},
      PresenceReport{.is_paused = true, .is_off_devices = true, .contexts = {510, 0, 510}},
      PresenceDemand{7, PresenceStep::HasLeft, {510}},
      PresenceAnswer{.number = 7,
                     .now = PresenceNow::Leaving,
                     .contexts = {510},
                     .why_not = "another command has brought it back"},
      TakesParts{3},
      LeasePart{3, GiB}};
}

std::vector<ObserverMessage> one_of_each_observed() {
  return {
      StateAsk{},
      TermsAsk{.name = "trainer", .sets_limit = true, .limit = 3 * GiB},
      PlaceState{.place = uuid, .index = 1, .capacity = 8 * GiB, .leased = GiB, .foreign = 7},
      ClientState{.client = 5, .process = 77, .user = 1000, .name = "trainer", .has_turn = true},
      HoldingState{.client = 5, .place = uuid, .leased = GiB, .waits_for = "server"},
      MoveState{.ago = 5,
                .took = 4,
                .place = uuid,
                .from = "server",
                .for_whom = "trainer",
                .step = ReclaimStep::Pause,
                .asked = GiB,
                .returned = GiB,
                .is_open = true},
      StateEnd{9},
      ObserverAnswer{.changed = 1},
      TimeTermsAsk{.name = "trainer", .cap = 30},
      TimeState{.client = 5, .cap = 30, .held = 7, .waited = 8, .competes = true},
      PauseState{.client = 5, .is_paused = true, .stay = DeviceStay::Off}};
}

TEST(NodeMessages, AreReadAsTheyWereWritten) {
  for (const NodeMessage& message : one_of_each()) {
    const Bytes bytes = encode(message);
    EXPECT_LE(bytes.size(), longest_message);
    const auto read = decode(bytes);
    ASSERT_TRUE(read.ok()) << message.index() << ": " << read.error().text();
    EXPECT_EQ(read->index(), message.index());
    EXPECT_EQ(encode(*read), bytes);
  }
  EXPECT_EQ(one_of_each().size(), std::variant_size_v<NodeMessage>) << "one is missing above";
}

TEST(ObserverMessages, AreReadAsTheyWereWritten) {
  for (const ObserverMessage& message : one_of_each_observed()) {
    const Bytes bytes = encode_observed(message);
    EXPECT_LE(bytes.size(), longest_message);
    const auto read = decode_observed(bytes);
    ASSERT_TRUE(read.ok()) << message.index() << ": " << read.error().text();
    EXPECT_EQ(read->index(), message.index());
    EXPECT_EQ(encode_observed(*read), bytes);
  }
  EXPECT_EQ(one_of_each_observed().size(), std::variant_size_v<ObserverMessage>);
}

TEST(ObserverMessages, MayLackFieldsThatOlderServicesDoNotSend) {
  Bytes bytes = encode_observed(MoveState{.from = "server", .is_open = true});
  bytes.pop_back();
  const auto read = decode_observed(bytes);
  ASSERT_TRUE(read.ok()) << read.error().text();
  EXPECT_EQ(std::get<MoveState>(*read).from, "server");
  EXPECT_EQ(std::get<MoveState>(*read).is_open, std::nullopt);
}

TEST(ObserverMessages, AreDistinctFromClientMessages) {
  for (const ObserverMessage& message : one_of_each_observed()) {
    EXPECT_EQ(decode(encode_observed(message)).error().kind, ErrorKind::NotAvailable);
  }
  for (const NodeMessage& message : one_of_each()) {
    EXPECT_EQ(decode_observed(encode(message)).error().kind, ErrorKind::NotAvailable);
  }
}

TEST(NodeMessages, KeepTheirFields) {
  const auto refusal = decode(encode(one_of_each().at(11)));
  ASSERT_TRUE(refusal.ok());
  const auto& read = std::get<LeaseRefusal>(*refusal);
  EXPECT_EQ(read.why, RefusalReason::TookTooLong);
  ASSERT_EQ(read.holders.size(), 2u);
  EXPECT_EQ(read.holders[0].process, 77u);
  EXPECT_EQ(read.holders[0].name, "server");
  EXPECT_EQ(read.holders[1].guarantee, 6u);
  const auto accepted = decode(encode(one_of_each().at(7)));
  EXPECT_EQ(std::get<Accepted>(*accepted).priority, -7);
}

// Other versions of cuvmm must be able to read these messages: these bytes never change.
TEST(NodeMessages, HaveTheDocumentedWireFormat) {
  const Bytes bytes = encode(LeaseReturn{uuid, 0x0102});
  const std::vector<int> expected{'C', 'V', 'N', 'D', 4,  0,  0,  0,  1, 2, 3, 4, 5, 6, 7, 8,
                                  9,   10,  11,  12,  13, 14, 15, 16, 2, 1, 0, 0, 0, 0, 0, 0};
  ASSERT_EQ(bytes.size(), expected.size());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_EQ(std::to_integer<int>(bytes[i]), expected[i]) << i;
  }
}

// Empty if it has always had all of its fields.
Bytes as_of_an_earlier_version(const NodeMessage& message) {
  const auto* const still = std::get_if<StandsStill>(&message);
  return still != nullptr ? encode(StandsStill{still->revision, still->has_ended_work}) : Bytes{};
}

TEST(NodeMessages, OfAnEarlierVersionLackNewFields) {
  const auto read = decode(as_of_an_earlier_version(StandsStill{9, true, 4}));
  ASSERT_TRUE(read.ok());
  const auto& still = std::get<StandsStill>(*read);
  EXPECT_EQ(still.revision, 9u);
  EXPECT_TRUE(still.has_ended_work);
  EXPECT_FALSE(still.steps_heard);
}

TEST(NodeMessages, ThatEndTooEarlyAreRefused) {
  for (const NodeMessage& message : one_of_each()) {
    const Bytes bytes = encode(message);
    const Bytes earlier = as_of_an_earlier_version(message);
    for (std::size_t length = 0; length < bytes.size(); ++length) {
      if (length != 0 && length == earlier.size()) continue;
      const auto read = decode(std::span{bytes}.first(length));
      ASSERT_FALSE(read.ok()) << message.index() << " of " << length;
      EXPECT_EQ(read.error().kind, ErrorKind::InvalidArgument);
    }
  }
}

TEST(NodeMessages, OfALaterVersionMayHaveMoreFields) {
  for (const NodeMessage& message : one_of_each()) {
    Bytes longer = encode(message);
    longer.resize(longer.size() + 24, std::byte{0xAB});
    const auto read = decode(longer);
    ASSERT_TRUE(read.ok()) << message.index();
    EXPECT_EQ(encode(*read), encode(message));
  }
}

TEST(NodeMessages, OfAnUnknownKindMayBeSkipped) {
  Bytes bytes = encode(LeaseGrant{3});
  for (const int kind : {0, 60, 255}) {
    bytes[4] = std::byte(kind);
    const auto read = decode(bytes);
    ASSERT_FALSE(read.ok());
    EXPECT_EQ(read.error().kind, ErrorKind::NotAvailable) << kind;
  }
}

TEST(NodeMessages, ThatAreForeignOrTooLongAreRefused) {
  Bytes bytes = encode(LeaseGrant{3});
  Bytes long_one = bytes;
  long_one.resize(longest_message + 1);
  EXPECT_EQ(decode(long_one).error().kind, ErrorKind::InvalidArgument);
  bytes[0] = std::byte{'X'};
  EXPECT_EQ(decode(bytes).error().kind, ErrorKind::InvalidArgument);
}

TEST(NodeMessages, WithUnknownValuesAreRefused) {
  Bytes report = encode(UseReport{});
  report.back() = std::byte{2};
  EXPECT_FALSE(decode(report).ok());
  Bytes demand = encode(ReclaimDemand{});
  demand[8 + 8 + 16] = std::byte{3};  // the step
  EXPECT_FALSE(decode(demand).ok());
  Bytes rejected = encode(Rejected{});
  rejected[8] = std::byte{4};
  EXPECT_FALSE(decode(rejected).ok());
}

TEST(NodeMessages, CarryNoLongOrUnreadableNames) {
  const auto read = decode(encode(Greeting{.name = std::string(500, 'n'), .group = "a\x1b[2Jb"}));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(std::get<Greeting>(*read).name.size(), longest_name);
  EXPECT_EQ(std::get<Greeting>(*read).group, "a?[2Jb");
  Bytes bytes = encode(Greeting{.name = "n"});
  bytes[8 + 4 + 1] = std::byte{0x1b};
  EXPECT_FALSE(decode(bytes).ok());
  bytes[8 + 4] = std::byte{65};
  EXPECT_FALSE(decode(bytes).ok());
}

TEST(NodeMessages, NameNoMoreHoldersThanThereIsRoomFor) {
  LeaseRefusal refusal;
  refusal.holders.resize(100, {1, 2, 3, std::string(longest_name, 'h')});
  const Bytes bytes = encode(refusal);
  EXPECT_LE(bytes.size(), longest_message);
  const auto read = decode(bytes);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(std::get<LeaseRefusal>(*read).holders.size(), most_holders);
}

TEST(NodeVersions, AreTheNewestThatBothSidesSupport) {
  EXPECT_EQ(common_version(Greeting{}), newest_protocol);
  EXPECT_EQ(common_version(Greeting{.oldest = 1, .newest = 900}), newest_protocol);
  EXPECT_EQ(common_version(Greeting{.oldest = 900, .newest = 901}), std::nullopt);
  EXPECT_EQ(common_version(Greeting{.oldest = 0, .newest = 0}), std::nullopt);
  EXPECT_EQ(common_version(Greeting{.oldest = 1, .newest = 0}), std::nullopt);
}

// A fallback for libFuzzer where there is no clang: the same target, on mutations of its initial
// corpus.
TEST(NodeMessages, ChangedAtRandomAreRefusedOrReadAlike) {
  PRINT_SEED_ON_FAILURE();
  std::mt19937_64 random{seed()};
  std::vector<std::string> corpus;
  for (const auto& entry :
       std::filesystem::directory_iterator{CUVMM_SOURCE_DIR "/tests/fuzz/node_message"}) {
    std::ifstream file{entry.path(), std::ios::binary};
    corpus.emplace_back(std::istreambuf_iterator<char>{file}, std::istreambuf_iterator<char>{});
  }
  ASSERT_EQ(corpus.size(), std::variant_size_v<NodeMessage> + std::variant_size_v<ObserverMessage>)
      << "one of each kind";
  for (std::uint64_t i = 0; i < scaled(20'000); ++i) {
    std::string bytes = corpus[random() % corpus.size()];
    for (auto changes = random() % 8; changes > 0 && !bytes.empty(); --changes) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
      if (random() % 6 == 0) bytes.resize(random() % (bytes.size() + 9));
    }
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  }
}

}  // namespace
}  // namespace cuvmm::test
