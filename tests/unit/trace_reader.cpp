// SPDX-License-Identifier: Apache-2.0
#include "trace/reader.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "support/scale.hpp"
#include "trace/checksum.hpp"
#include "unit/trace_world.hpp"

namespace cuvmm::test {
namespace {

using trace_format::BlockHeader;
using trace_format::many_threads;
using trace_format::records_in_a_block;

class TraceReading : public TraceFolder {};

std::vector<std::uint64_t> numbers_of(const std::vector<TraceRecord>& records) {
  std::vector<std::uint64_t> numbers;
  numbers.reserve(records.size());
  for (const TraceRecord& record : records) numbers.push_back(record.address);
  return numbers;
}

bool is_in_time_order(const std::vector<TraceRecord>& records) {
  return std::is_sorted(records.begin(), records.end(),
                        [](const auto& a, const auto& b) { return a.time < b.time; });
}

TEST_F(TraceReading, RoundTrips) {
  const std::string path = in_folder("t");
  write_trace(path, 3, 5);
  TraceReader trace = opened(path);
  EXPECT_EQ(trace.header(), small_header());
  EXPECT_EQ(trace.record_count(), 15u);
  EXPECT_EQ(trace.last_time(), 15u);
  const auto records = records_of(trace);
  ASSERT_EQ(records.size(), 15u);
  for (std::uint64_t i = 0; i < records.size(); ++i) EXPECT_EQ(records[i], record_number(i, i));
  EXPECT_EQ(trace.note(), "");
  EXPECT_TRUE(trace.health().is_finished);
}

TEST_F(TraceReading, RewoundReadsTheSameAgain) {
  write_trace(in_folder("t"), 2, records_in_a_block);
  TraceReader trace = opened(in_folder("t"));
  const auto once = records_of(trace);
  trace.rewind();
  EXPECT_EQ(records_of(trace), once);
  trace.rewind();
  EXPECT_EQ(trace.next()->address, 0u);
  trace.rewind();
  EXPECT_EQ(trace.next()->address, 0u);
}

TEST_F(TraceReading, TraceWithoutRecordsIsEmptyAndWell) {
  given_sink(in_folder("t")).finish(0, 5, 0);
  TraceReader trace = opened(in_folder("t"));
  EXPECT_EQ(trace.next(), nullptr);
  EXPECT_TRUE(trace.status());
  EXPECT_EQ(trace.note(), "");
}

TEST_F(TraceReading, MoreFactsThanAreReadAreNoDamage) {
  constexpr Size one = 64 * KiB;
  TraceSink sink = given_sink(in_folder("t"));
  for (std::uint64_t i = 0; i < 5 * MiB / one; ++i) {
    sink.add(TraceFacts{.names = {{TraceSubject::Arena, i, std::string(one, 'a')}}});
  }
  sink.finish(0, 1, 0);
  const TraceReader trace = opened(in_folder("t"));
  EXPECT_EQ(trace.note(), "");
  EXPECT_GT(trace.header().facts.names.size(), 50U);
}

TEST_F(TraceReading, FactsThatCameLaterStandInTheHeader) {
  TraceSink sink = given_sink(in_folder("t"));
  sink.add(std::vector{record_number(0, 0)}, 0, 0);
  sink.add(TraceFacts{.devices = {{.ordinal = 1, .memory = 3 * GiB, .name = "H200"}},
                      .names = {{TraceSubject::Arena, 4, "small blocks"}}});
  sink.add(std::vector{record_number(1, 1)}, 0, 0);
  sink.finish(0, 2, 1);

  TraceReader trace = opened(in_folder("t"));
  TraceFacts expected = small_header().facts;
  expected.devices.push_back({.ordinal = 1, .memory = 3 * GiB, .name = "H200"});
  expected.names.push_back({TraceSubject::Arena, 4, "small blocks"});
  EXPECT_EQ(trace.header().facts, expected);
  EXPECT_EQ(numbers_of(records_of(trace)), (std::vector<std::uint64_t>{0, 1}));
}

TEST_F(TraceReading, ThreadsAreMergedInTheOrderOfTime) {
  PRINT_SEED_ON_FAILURE();
  std::mt19937_64 random{seed()};
  constexpr std::uint32_t threads = 7;
  std::vector<std::vector<TraceRecord>> of_thread(threads);
  std::vector<TraceRecord> all;
  std::uint64_t time = 0;
  for (std::uint64_t number = 0; number < 60'000; ++number) {
    time += random() % 3;  // several records may share a time
    const auto thread = static_cast<std::uint32_t>(random() % threads);
    of_thread[thread].push_back(record_number(number, time, thread));
    all.push_back(of_thread[thread].back());
  }

  TraceSink sink = given_sink(in_folder("t"));
  std::vector<std::size_t> written(threads, 0);
  for (std::size_t left = all.size(); left > 0;) {  // blocks of any size, threads in any order
    const std::size_t thread = random() % threads;
    const std::span rest = std::span{of_thread[thread]}.subspan(written[thread]);
    const std::size_t count = std::min(rest.size(), random() % records_in_a_block);
    sink.add(rest.first(count), static_cast<std::uint32_t>(thread), 0);
    written[thread] += count;
    left -= count;
  }
  sink.finish(0, time, threads);

  auto read = records_of(in_folder("t"));
  EXPECT_TRUE(is_in_time_order(read));
  ASSERT_EQ(read.size(), all.size());
  std::stable_sort(read.begin(), read.end(),
                   [](const auto& a, const auto& b) { return a.address < b.address; });
  EXPECT_TRUE(read == all);
}

TEST_F(TraceReading, RecordHandedOverLateComesAtItsTime) {
  TraceSink sink = given_sink(in_folder("t"));
  constexpr std::uint64_t blocks = 100;  // several stretches
  for (std::uint64_t block = 0; block < blocks; ++block) {
    std::vector<TraceRecord> records;
    for (std::uint64_t i = 0; i < records_in_a_block; ++i) {
      const std::uint64_t number = block * records_in_a_block + i;
      records.push_back(record_number(number, 10 * number));
    }
    sink.add(records, 0, 0);
  }
  sink.add(std::vector{record_number(1'000'000, 15, 1)}, 1, 0);  // waits from then until now
  sink.finish(0, blocks * records_in_a_block * 10, 2);

  const auto records = records_of(in_folder("t"));
  ASSERT_EQ(records.size(), blocks * records_in_a_block + 1);
  EXPECT_TRUE(is_in_time_order(records));
  EXPECT_EQ(records[2].address, 1'000'000u);
}

TEST_F(TraceReading, TruncatedAnywhereGivesTheRecordsBeforeThat) {
  const std::string path = in_folder("t");
  write_trace(path, 3, 4);
  const std::string whole = bytes_of_file(path);
  const std::size_t header = trace_format::encode(small_header()).size();
  const std::size_t block = sizeof(BlockHeader) + 4 * sizeof(TraceRecord);

  for (std::size_t size = 0; size < whole.size(); ++size) {
    SCOPED_TRACE(size);
    auto trace = read_bytes(whole.substr(0, size));
    if (size < header) {
      EXPECT_FALSE(trace);
      continue;
    }
    ASSERT_TRUE(trace) << trace.error().text();
    const auto records = records_of(*trace);
    std::size_t expected = 0;
    for (std::size_t b = 0; b < 3; ++b) {
      const std::size_t begin = header + b * block + sizeof(BlockHeader);
      if (size > begin) expected += std::min<std::size_t>(4, (size - begin) / sizeof(TraceRecord));
    }
    ASSERT_EQ(records.size(), expected);
    EXPECT_EQ(trace->record_count(), expected);
    for (std::uint64_t i = 0; i < expected; ++i) ASSERT_EQ(records[i], record_number(i, i));
    EXPECT_FALSE(trace->health().is_finished);
    EXPECT_EQ(trace->health().damaged, 0u);
    EXPECT_NE(trace->note(), "");
  }
}

TEST_F(TraceReading, FlippedBitCostsItsBlockAndNothingElse) {
  const std::string path = in_folder("t");
  write_trace(path, 3, 2);
  const std::string whole = bytes_of_file(path);
  const std::size_t header = trace_format::encode(small_header()).size();
  for (std::size_t bit = header * 8; bit < whole.size() * 8; ++bit) {
    SCOPED_TRACE(bit);
    std::string flipped = whole;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    auto trace = read_bytes(flipped);
    ASSERT_TRUE(trace) << trace.error().text();
    const auto records = records_of(*trace);
    const std::size_t hit = (bit / 8 - header) / (sizeof(BlockHeader) + 2 * sizeof(TraceRecord));
    std::vector<std::uint64_t> expected;
    for (std::uint64_t number = 0; number < 6; ++number) {
      if (number / 2 != hit) expected.push_back(number);
    }
    ASSERT_EQ(numbers_of(records), expected);
    for (const TraceRecord& record : records) {
      ASSERT_EQ(record, record_number(record.address, record.address));
    }
    EXPECT_NE(trace->note(), "");
  }
}

TEST_F(TraceReading, OtherFilesAreRefusedInOneLine) {
  const std::string path = in_folder("t");
  for (const std::string& content :
       {std::string(), std::string("CUVMMTR"), std::string(1000, '\0'), std::string(1000, 'x'),
        std::string("time_us,action,address,size,stream\n")}) {
    write_file(path, content);
    EXPECT_EQ(refusal_of(path), "read trace: invalid argument (not a trace of cuvmm)");
  }
  write_file(path, "\x1f\x8b\x08");
  EXPECT_EQ(refusal_of(path),
            "read trace: invalid argument (it is compressed: uncompress it with gunzip first)");
  EXPECT_EQ(refusal_of(in_folder("none")), "open trace: No such file or directory");
  EXPECT_EQ(refusal_of(folder_.path()), "read trace: invalid argument (not a plain file)");
  ASSERT_EQ(::mkfifo(in_folder("pipe").c_str(), 0600), 0);
  EXPECT_EQ(refusal_of(in_folder("pipe")), "read trace: invalid argument (not a plain file)");
}

void with_start(const std::string& path, void (*change)(trace_format::FileHeader&)) {
  std::string bytes = trace_format::encode(small_header());
  trace_format::FileHeader start;
  std::memcpy(&start, bytes.data(), sizeof start);
  change(start);
  std::memcpy(bytes.data(), &start, sizeof start);
  write_file(path, bytes);
}

TEST_F(TraceReading, NewerVersionIsNamedAsSuch) {
  with_start(in_folder("t"), [](auto& start) { ++start.major; });
  EXPECT_EQ(refusal_of(in_folder("t")),
            "read trace: not supported (a newer cuvmm wrote it; this one cannot read its format)");
}

TEST_F(TraceReading, HeaderThatMakesNoSenseIsRefused) {
  const std::string path = in_folder("t");
  with_start(path, [](auto& start) { start.byte_order = 0x04030201; });
  EXPECT_NE(refusal_of(path).find("machine of another kind"), std::string::npos);
  for (const auto change : {+[](trace_format::FileHeader& start) { start.header_size = ~0u; },
                            +[](trace_format::FileHeader& start) { start.header_size = 0; },
                            +[](trace_format::FileHeader& start) { start.record_size = 0; },
                            +[](trace_format::FileHeader& start) { ++start.checksum; }}) {
    with_start(path, change);
    EXPECT_NE(refusal_of(path).find("its header is damaged"), std::string::npos);
  }
  with_start(path, [](auto& start) { start.header_size = 64 * 1024; });
  EXPECT_NE(refusal_of(path).find("ends before its first record"), std::string::npos);
}

// A block as any writer might have written it, with valid checksums.
std::string block_of(BlockHeader block, const std::string& payload) {
  block.magic = trace_format::block_magic;
  block.payload_size = static_cast<std::uint32_t>(payload.size());
  trace_format::seal(block, std::as_bytes(std::span{payload}));
  return std::string{reinterpret_cast<const char*>(&block), sizeof block} + payload;
}

std::string block_of(const std::vector<TraceRecord>& records) {
  return block_of(
      {.type = trace_format::BlockType::Records,
       .records = static_cast<std::uint32_t>(records.size()),
       .thread = many_threads,
       .first_time = records.front().time,
       .last_time = records.back().time},
      {reinterpret_cast<const char*>(records.data()), records.size() * sizeof(TraceRecord)});
}

TEST_F(TraceReading, BlocksAndEventsOfLaterVersionsAreSkippedOrPassedOn) {
  TraceRecord unknown = record_number(1, 2);
  unknown.event = static_cast<TraceEvent>(60'000);
  write_file(in_folder("t"), trace_format::encode(small_header()) +
                                 block_of({.type = static_cast<trace_format::BlockType>(77)},
                                          std::string(256, 'z')) +
                                 block_of({unknown}));
  TraceReader trace = opened(in_folder("t"));
  EXPECT_EQ(records_of(trace), std::vector{unknown});
  EXPECT_EQ(trace.health().damaged, 0u);
}

TEST_F(TraceReading, InconsistentBlockIsSkipped) {
  const std::string good = block_of({record_number(7, 100)});
  const auto backwards = block_of({record_number(1, 9), record_number(2, 3)});
  BlockHeader one_thread{.type = trace_format::BlockType::Records, .records = 1, .thread = 5};
  const TraceRecord of_another = record_number(0, 0, 6);
  const auto wrong_thread =
      block_of(one_thread, {reinterpret_cast<const char*>(&of_another), sizeof of_another});
  BlockHeader many{.type = trace_format::BlockType::Records, .records = ~0u};
  const auto wrong_count = block_of(many, std::string(64, 'q'));
  BlockHeader none{.type = trace_format::BlockType::Records};
  for (const std::string& bad : {backwards, wrong_thread, wrong_count, block_of(none, "")}) {
    std::string bytes = trace_format::encode(small_header());
    write_file(in_folder("t"), bytes.append(bad).append(good));
    TraceReader trace = opened(in_folder("t"));
    EXPECT_EQ(numbers_of(records_of(trace)), std::vector<std::uint64_t>{7});
    EXPECT_GE(trace.health().damaged, 1u);
  }
}

TEST_F(TraceReading, NothingAfterTheTraceIsReadForLong) {
  const std::string path = in_folder("t");
  write_trace(path, 1, 3);
  ASSERT_EQ(::truncate(path.c_str(), static_cast<off_t>(1 * TiB)), 0);  // zeros without disk space
  TraceReader trace = opened(path);
  EXPECT_EQ(records_of(trace).size(), 3u);
  EXPECT_GT(trace.health().cut_bytes, 0u);
}

TEST_F(TraceReading, RecordsTooFarOutOfOrderAreRefusedNotLoaded) {
  TraceSink sink = given_sink(in_folder("t"));
  constexpr std::size_t blocks = 256 * MiB / (records_in_a_block * sizeof(TraceRecord)) + 32;
  std::vector<TraceRecord> records(records_in_a_block, record_number(0, 5));
  records.back().time = 10;  // every block overlaps every other
  for (std::size_t block = 0; block < blocks; ++block) sink.add(records, 0, 0);
  sink.finish(0, 10, 1);
  TraceReader trace = opened(in_folder("t"));
  while (trace.next() != nullptr) {
  }
  ASSERT_FALSE(trace.status());
  EXPECT_EQ(trace.status().error().text(),
            "read trace: invalid argument (its records are too far out of order)");
}

TEST_F(TraceReading, FileCutWhileItIsReadEndsEarly) {
  write_trace(in_folder("t"), 40, records_in_a_block);
  TraceReader trace = opened(in_folder("t"));
  ASSERT_NE(trace.next(), nullptr);
  ASSERT_EQ(::truncate(in_folder("t").c_str(), 2 * MiB), 0);
  std::size_t count = 1;
  while (trace.next() != nullptr) ++count;
  EXPECT_TRUE(trace.status());
  EXPECT_LT(count, 40 * records_in_a_block);
  EXPECT_GT(count, 1 * MiB / sizeof(TraceRecord));
}

TEST_F(TraceReading, AnythingAtAllIsReadWithoutHarm) {
  PRINT_SEED_ON_FAILURE();
  const std::string path = in_folder("t");
  write_trace(path, 4, 6);
  const std::string whole = bytes_of_file(path);
  const std::size_t header = trace_format::encode(small_header()).size();
  std::mt19937_64 random{seed()};
  for (std::uint64_t round = 0; round < scaled(2000); ++round) {
    std::string bytes = whole;
    for (std::uint64_t changes = 1 + random() % 8; changes > 0; --changes) {
      const std::size_t at =
          random() % 4 == 0 ? random() % bytes.size() : header + random() % (bytes.size() - header);
      switch (random() % 4) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes.erase(at, random() % 200);
          break;
        case 2:
          bytes.insert(at, bytes.substr(random() % bytes.size(), random() % 400));
          break;
        default:
          std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                    bytes.begin() +
                        static_cast<std::ptrdiff_t>(std::min(bytes.size(), at + random() % 128)),
                    '\xff');
      }
      if (bytes.size() <= header) break;
    }
    auto trace = read_bytes(bytes);
    if (!trace) continue;
    std::uint64_t before = 0;
    while (const TraceRecord* record = trace->next()) {
      ASSERT_GE(record->time, before);
      before = record->time;
    }
    trace->note();
  }
}

}  // namespace
}  // namespace cuvmm::test
