// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "view/picture.hpp"
#include "view/recorded.hpp"

namespace cuvmm::test {
namespace {

using view::Picture;
using view::PictureRequest;

constexpr std::uint64_t base = 0x7f0000000000;

Picture picture_of(const std::vector<TraceRecord>& records, const PictureRequest& request = {}) {
  const OwnFile file;
  write_trace(file.path(), records);
  auto recording = opened(file.path());
  auto picture = view::take_picture(recording, request);
  EXPECT_TRUE(picture.ok());
  return std::move(*picture);
}

std::uint8_t cell(const Picture& picture, const std::vector<std::uint8_t>& of, std::size_t column,
                  std::size_t row) {
  return of[row * picture.columns + column];
}

TEST(Picture, ShowsWhatLiesWhereAndWhen) {
  // The lower half is allocated all the time, the upper half only for the first half of it.
  const Picture picture =
      picture_of({allocated(0, base, 10 * MiB), allocated(0, base + 10 * MiB, 10 * MiB),
                  freed(500'000, base + 10 * MiB), allocated(999'999, base, 10 * MiB)},
                 {.columns = 10, .rows = 4, .samples = 10});
  EXPECT_EQ(picture.address_bytes, 20 * MiB);
  EXPECT_EQ(cell(picture, picture.used, 2, 0), 255);
  EXPECT_EQ(cell(picture, picture.used, 8, 0), 255);
  EXPECT_EQ(cell(picture, picture.used, 2, 3), 255);
  EXPECT_EQ(cell(picture, picture.used, 8, 3), 0);
  EXPECT_EQ(picture.requested[2], 20 * MiB);
  EXPECT_EQ(picture.requested[8], 10 * MiB);
  EXPECT_EQ(picture.requested_peak, 20 * MiB);
}

TEST(Picture, DistinguishesMappedFromUsed) {
  const Picture picture =
      picture_of({mapped(0, base, 4 * MiB, 1), allocated(1000, base, 2 * MiB, 0), freed(2000, base),
                  unmapped(3000, base, 4 * MiB), freed(4000, 1)},
                 {.columns = 4, .rows = 2, .samples = 4});
  EXPECT_LE(cell(picture, picture.used, 0, 0), 1);
  EXPECT_EQ(cell(picture, picture.mapped, 0, 0), 255);
  EXPECT_GT(cell(picture, picture.used, 1, 0), 250);
  EXPECT_EQ(cell(picture, picture.used, 1, 1), 0);
  EXPECT_EQ(cell(picture, picture.mapped, 3, 1), 0);
}

TEST(Picture, BeginsWhereMemoryIsTaken) {
  const Picture picture = picture_of({{.time = 5, .event = TraceEvent::Launch, .stream = 1},
                                      allocated(1'000'000, base, MiB),
                                      freed(1'000'900, base)});
  EXPECT_EQ(picture.begin, 1'000'000U);
  EXPECT_EQ(picture.end, 1'000'901U);
}

TEST(Picture, CountsOnlyOperationsThatWereStarted) {
  const auto launch = [](std::int16_t result, std::uint16_t flags) {
    return TraceRecord{.time = 10,
                       .event = TraceEvent::Launch,
                       .flags = flags,
                       .device = 0,
                       .result = result,
                       .stream = 1};
  };
  const Picture picture = picture_of({allocated(0, base, MiB), launch(0, 0), launch(1, 0),
                                      launch(0, trace_flag::captured), freed(1000, base)},
                                     {.samples = 1});
  ASSERT_EQ(picture.lanes.size(), 1U);
  EXPECT_EQ(picture.lanes[0].operations[0], 1U);
}

TEST(Picture, FollowsTheLimitOfItsDevice) {
  const auto limit = [](std::uint64_t time, std::int16_t device, Size bytes) {
    return TraceRecord{.time = time, .event = TraceEvent::Limit, .device = device, .size = bytes};
  };
  const Picture picture =
      picture_of({limit(5, 0, 32 * MiB), allocated(10, base, MiB), limit(20, 0, 16 * MiB),
                  limit(30, 1, 8 * MiB), limit(40, 0, unlimited), freed(1000, base)});
  ASSERT_EQ(picture.limits.size(), 3U);
  EXPECT_EQ(picture.limits[0].time, 10U);
  EXPECT_EQ(picture.limits[0].bytes, 32 * MiB);
  EXPECT_EQ(picture.limits[1].time, 20U);
  EXPECT_EQ(picture.limits[1].bytes, 16 * MiB);
  EXPECT_EQ(picture.limits[2].time, 40U);
  EXPECT_EQ(picture.limits[2].bytes, std::nullopt);
}

TEST(Picture, MarksRefusals) {
  const Picture picture =
      picture_of({allocated(0, base, MiB),
                  {.time = 700, .event = TraceEvent::AllocateFailed, .device = 0, .size = 99 * MiB},
                  freed(1000, base)});
  ASSERT_EQ(picture.refusals.size(), 1U);
  EXPECT_EQ(picture.refusals[0].asked, 99 * MiB);
  EXPECT_EQ(picture.refusals[0].time, 700U);
}

TEST(Picture, CountsOnlyRequestsThatWereRefusedForLackOfMemory) {
  const auto refused = [](TraceEvent event, std::int16_t result, Size size) {
    return TraceRecord{.time = 700,
                       .event = event,
                       .flags = trace_flag::native,
                       .device = 0,
                       .result = result,
                       .size = size};
  };
  constexpr std::int16_t out_of_memory = 2;
  constexpr std::int16_t illegal_address = 700;
  const Picture picture =
      picture_of({allocated(0, base, MiB), refused(TraceEvent::AllocateFailed, out_of_memory, MiB),
                  refused(TraceEvent::AllocateFailed, illegal_address, GiB),
                  refused(TraceEvent::Create, out_of_memory, 2 * MiB),
                  refused(TraceEvent::Create, illegal_address, GiB), freed(1000, base)});
  EXPECT_EQ(picture.refusal_count, 2U);
  EXPECT_EQ(picture.largest_refusal, 2 * MiB);
}

TEST(Picture, KnowsTheLargestRefusalAmongMany) {
  std::vector<TraceRecord> records{allocated(0, base, MiB)};
  for (std::uint64_t i = 1; i <= 200; ++i) {
    records.push_back(
        {.time = i, .event = TraceEvent::AllocateFailed, .device = 0, .size = i * MiB});
  }
  EXPECT_EQ(picture_of(records).largest_refusal, 200 * MiB);
}

TEST(Picture, SeesFragmentationComeAndGo) {
  std::vector<TraceRecord> records;
  for (std::uint64_t i = 0; i < 64; ++i) records.push_back(allocated(i, base + i * MiB, MiB));
  for (std::uint64_t i = 0; i < 64; i += 2) records.push_back(freed(1000 + i, base + i * MiB));
  for (std::uint64_t i = 1; i < 64; i += 2) records.push_back(freed(9000 + i, base + i * MiB));
  records.push_back(freed(12'000, 1));
  const Picture picture = picture_of(records, {.samples = 12});
  EXPECT_NEAR(picture.fragmentation[5], 1, 1e-9);
  EXPECT_NEAR(picture.fragmentation[11], 0, 1e-9);
}

// A log does not say how much memory was free in total.
TEST(Picture, OfALogLeavesOutFragmentation) {
  const OwnFile file;
  std::ofstream{file.path()} << "cuvmm[42] INFO 100 allocate address=0x10000 size=64 granted=512 "
                                "device=0\n"
                             << "cuvmm[42] INFO 200 allocate_failed size=1000000 free=900000 "
                                "device=0\n";
  auto recording = opened(file.path());
  const auto picture = view::take_picture(recording, {.samples = 10});
  ASSERT_TRUE(picture.ok());
  EXPECT_EQ(picture->refusal_count, 1U);
  EXPECT_TRUE(picture->fragmentation.empty());
  EXPECT_EQ(picture->rounding_waste.size(), 10U);
}

TEST(Picture, HasALaneForEachClient) {
  TraceRecord first{.time = 1, .event = TraceEvent::Issued, .device = 0, .client = 1, .stream = 5};
  TraceRecord second = first;
  second.client = 2;
  const Picture picture =
      picture_of({allocated(0, base, MiB), first, second, second, freed(9, base)});
  EXPECT_TRUE(picture.lanes_are_clients);
  ASSERT_EQ(picture.lanes.size(), 2U);
  EXPECT_EQ(picture.lanes[0].name, "client 2");
}

TEST(Picture, OfOneDeviceLeavesOutTheOthers) {
  const TraceRecord refused{
      .time = 2, .event = TraceEvent::AllocateFailed, .device = 1, .size = 99 * MiB};
  const TraceRecord launched{.time = 3, .event = TraceEvent::Launch, .device = 1, .stream = 5};
  const std::vector<TraceRecord> records{allocated(0, base, MiB), refused, launched,
                                         freed(9, base)};
  const Picture first = picture_of(records);
  EXPECT_EQ(first.device_count, 2U);
  EXPECT_EQ(first.refusal_count, 0U);
  EXPECT_TRUE(first.lanes.empty());
  const Picture second = picture_of(records, {.device = 1});
  EXPECT_EQ(second.device_count, 2U);
  EXPECT_EQ(second.refusal_count, 1U);
  EXPECT_EQ(second.lanes.size(), 1U);
}

TEST(Picture, CannotBeTakenOfATraceWithoutMemoryAndWork) {
  const OwnFile file;
  write_trace(file.path(), {{.time = 5, .event = TraceEvent::Note}});
  auto recording = opened(file.path());
  EXPECT_FALSE(view::take_picture(recording, {}).ok());
}

TEST(Picture, IsWrittenAsJsonWhateverTheNamesAre) {
  Picture picture = picture_of({allocated(0, base, MiB), freed(9, base)});
  picture.header.command = {"caf\xe9", "日本"};
  const auto json = nlohmann::json::parse(view::to_json({picture, picture}));
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(json["pictures"].size(), 2U);
  EXPECT_EQ(json["pictures"][0]["command"][1], "日本");
}

}  // namespace
}  // namespace cuvmm::test
