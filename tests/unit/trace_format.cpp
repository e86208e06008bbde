// SPDX-License-Identifier: Apache-2.0
#include "trace/format.hpp"

#include <cstring>
#include <fstream>
#include <random>
#include <set>
#include <sstream>

#include "support/scale.hpp"
#include "trace/checksum.hpp"
#include "trace/header.hpp"
#include "unit/trace_world.hpp"

namespace cuvmm::test {
namespace {

std::span<const std::byte> bytes(const std::string& text) {
  return std::as_bytes(std::span{text});
}

TEST(Checksum, IsCrc32c) {
  EXPECT_EQ(crc32c(bytes("123456789")), 0xE3069283u);            // the published check value
  EXPECT_EQ(crc32c(bytes(std::string(32, '\0'))), 0x8A9136AAu);  // RFC 3720, B.4
  EXPECT_EQ(crc32c({}), 0u);
}

TEST(Checksum, InstructionAndTableAgree) {
  PRINT_SEED_ON_FAILURE();
  std::mt19937_64 random{seed()};
  for (std::size_t size = 0; size < 300; ++size) {
    std::string text(size, '\0');
    for (char& c : text) c = static_cast<char>(random());
    const auto start = static_cast<std::uint32_t>(random());
    EXPECT_EQ(crc32c(bytes(text), start), detail::crc32c_by_table(bytes(text), start)) << size;
  }
}

TEST(Checksum, GoesOnFromWhereItWas) {
  const std::string whole = "an address is not memory";
  for (std::size_t cut = 0; cut <= whole.size(); ++cut) {
    EXPECT_EQ(crc32c(bytes(whole.substr(cut)), crc32c(bytes(whole.substr(0, cut)))),
              crc32c(bytes(whole)));
  }
}

TEST(TraceEvents, NumbersAreUnique) {
  std::set<int> numbers;
  std::size_t count = 0;
#define CUVMM_TRACE_EVENT(name, number, ...) \
  numbers.insert(number);                    \
  ++count;                                   \
  EXPECT_STREQ(name_of(TraceEvent::name), #name);
#include "trace/events.def"
#undef CUVMM_TRACE_EVENT
  EXPECT_EQ(numbers.size(), count);
  EXPECT_FALSE(numbers.contains(0)) << "0 is what an empty file holds";
  EXPECT_EQ(name_of(static_cast<TraceEvent>(9999)), nullptr);
}

TEST(TraceEvents, StandInTheDocs) {
  std::ifstream file{std::string(CUVMM_SOURCE_DIR) + "/docs/internals/trace_format.md"};
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_NE(text.str().find(describe_trace_events()), std::string::npos)
      << "docs/internals/trace_format.md should hold:\n\n"
      << describe_trace_events();
}

TEST(TraceEvents, WordsRoundTrip) {
  EXPECT_EQ(note_of(trace_note("step 12")), "step 12");
  const std::string longest = "exactly thirty-two bytes of text";
  EXPECT_EQ(note_of(trace_note(longest)), longest);
  EXPECT_EQ(note_of(trace_note(longest + " and more")), longest);
}

TEST(TraceHeader, RoundTrips) {
  const TraceHeader header = small_header();
  const std::string encoded = trace_format::encode(header);
  EXPECT_EQ(encoded.size() % trace_format::unit, 0u);
  const auto decoded = trace_format::decode_header(bytes(encoded));
  ASSERT_TRUE(decoded) << decoded.error().text();
  EXPECT_EQ(*decoded, header);
}

TEST(TraceHeader, OfThisProcessSaysWhoAndWhen) {
  const TraceHeader header = TraceHeader::of_this_process();
  EXPECT_EQ(header.process, static_cast<std::uint64_t>(::getpid()));
  EXPECT_FALSE(header.command.empty());
  EXPECT_FALSE(header.host.empty());
  EXPECT_GT(header.start_ns, 0u);
  EXPECT_GT(header.wall_ns, 1'700'000'000'000'000'000u);
}

TEST(TraceHeader, CallsAreNamedByTheirRows) {
  const TraceHeader header = small_header();
  EXPECT_EQ(header.call(1), "cuMemFree");
  EXPECT_EQ(header.call(2), "");
  EXPECT_EQ(header.call(no_call), "");
}

// Inserts `section` before the others and makes the header valid again.
std::string with_section(std::uint32_t type, const std::string& content) {
  const std::string encoded = trace_format::encode(small_header());
  trace_format::FileHeader start;
  std::memcpy(&start, encoded.data(), sizeof start);

  trace_format::SectionHeader head{type, static_cast<std::uint32_t>(content.size())};
  std::string section{reinterpret_cast<const char*>(&head), sizeof head};
  section += content;
  section.resize((section.size() + 7) / 8 * 8);
  std::string sections = section + encoded.substr(sizeof start);
  sections.resize(trace_format::whole_units(sections.size()));

  start.header_size = static_cast<std::uint32_t>(sizeof start + sections.size());
  start.checksum = 0;
  start.checksum = crc32c(bytes(sections), crc32c(trace_format::bytes_of(start)));
  return std::string{reinterpret_cast<const char*>(&start), sizeof start} + sections;
}

TEST(TraceHeader, SectionsOfLaterVersionsAreSkipped) {
  for (const char* content : {"", "1", "12345678", "a section that nobody knows yet"}) {
    const auto decoded = trace_format::decode_header(bytes(with_section(4000, content)));
    ASSERT_TRUE(decoded) << decoded.error().text();
    EXPECT_EQ(*decoded, small_header());
  }
}

TEST(TraceHeader, CountsBeyondTheirSectionAreRefused) {
  const std::string most(4, '\xff');
  for (const auto type : {trace_format::SectionType::Options, trace_format::SectionType::Command,
                          trace_format::SectionType::Devices, trace_format::SectionType::Calls,
                          trace_format::SectionType::Names}) {
    for (const std::string& content : {most, most + most, std::string("\1\0\0\0", 4) + most}) {
      const std::string header = with_section(static_cast<std::uint32_t>(type), content);
      EXPECT_FALSE(trace_format::decode_header(bytes(header))) << static_cast<int>(type);
    }
  }
  EXPECT_FALSE(trace_format::decode_header(bytes(with_section(1, "short"))));
}

TEST(TraceHeader, EveryFlippedBitIsNoticed) {
  const std::string encoded = trace_format::encode(small_header());
  for (std::size_t bit = 0; bit < encoded.size() * 8; ++bit) {
    std::string flipped = encoded;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    EXPECT_FALSE(trace_format::decode_header(bytes(flipped))) << "bit " << bit;
  }
}

TEST(TraceHeader, EveryTruncationIsNoticed) {
  const std::string encoded = trace_format::encode(small_header());
  for (std::size_t size = 0; size < encoded.size(); ++size) {
    EXPECT_FALSE(trace_format::decode_header(bytes(encoded).first(size))) << size;
  }
}

}  // namespace
}  // namespace cuvmm::test
