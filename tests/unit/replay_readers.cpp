// SPDX-License-Identifier: Apache-2.0
#include <zlib.h>

#include "replay/read_trace.hpp"
#include "unit/trace_world.hpp"

namespace cuvmm::test {
namespace {

using replay::Action;
using replay::Kind;
using replay::ReplayEvent;
using replay::ReplayTrace;

class ReplayReaders : public TraceFolder {
 protected:
  Result<ReplayTrace> read(const std::string& bytes) const {
    write_file(in_folder("t"), bytes);
    return replay::read_trace(in_folder("t"));
  }
  ReplayTrace given(const std::string& bytes) const {
    auto trace = read(bytes);
    EXPECT_TRUE(trace) << trace.error().text();
    return trace ? *trace : ReplayTrace{};
  }
  std::string refusal(const std::string& bytes) const {
    const auto trace = read(bytes);
    return trace ? "it was read" : trace.error().text();
  }
};

std::string compressed(const std::string& text) {
  z_stream stream{};
  constexpr int as_gzip = 15 + 16;
  deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, as_gzip, 8, Z_DEFAULT_STRATEGY);
  std::string bytes(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(bytes.data());
  stream.avail_out = static_cast<uInt>(bytes.size());
  deflate(&stream, Z_FINISH);
  bytes.resize(stream.total_out);
  deflateEnd(&stream);
  return bytes;
}

const std::string pytorch_head = "time_us,action,address,size,stream\n";
const std::string rmm_head = "Thread,Time,Action,Pointer,Size,Stream\n";

TEST_F(ReplayReaders, BlockIsLiveFromItsAllocationUntilItsFreeIsCompleted) {
  const ReplayTrace trace = given(pytorch_head +
                                  "0,segment_alloc,7f0000,2097152,0\n"
                                  "3,alloc,7f0000,1000,0\n"
                                  "4,free_requested,7f0000,1000,0\n"
                                  "5,alloc,7f0400,24,12345678\n"
                                  "6,free_completed,7f0000,1000,0\n"
                                  "9,alloc,7f0000,500,0\n");
  const std::vector<ReplayEvent> expected{
      {.time_us = 3, .size = 1000, .block = 0, .stream = 1, .action = Action::Allocate},
      {.time_us = 5, .size = 24, .block = 1, .stream = 2, .action = Action::Allocate},
      {.time_us = 6, .size = 1000, .block = 0, .stream = 1, .action = Action::Free},
      {.time_us = 9, .size = 500, .block = 2, .stream = 1, .action = Action::Allocate}};
  EXPECT_EQ(trace.events, expected);
  EXPECT_EQ(trace.live_peak_bytes, 1024u);
  EXPECT_EQ(trace.largest_bytes, 1000u);
  EXPECT_EQ(trace.allocations, 3u);
  EXPECT_EQ(trace.streams, 2u);
  EXPECT_EQ(trace.duration_us, 9u);
}

TEST_F(ReplayReaders, CompressionMakesNoDifference) {
  std::string text = pytorch_head;
  for (int i = 0; i < 30'000; ++i) {  // more than one buffer
    text += std::to_string(i) + ",alloc," + std::to_string(1'000'000 + i) + ",512,0\n";
  }
  const ReplayTrace plain = given(text);
  EXPECT_EQ(plain.events.size(), 30'000u);
  EXPECT_EQ(given(compressed(text)).events, plain.events);
}

TEST_F(ReplayReaders, OrderOfColumnsAndEndsOfLinesDoNotMatter) {
  const ReplayTrace usual = given(pytorch_head + "1,alloc,a0,64,0\n\n2,free_completed,a0,64,0\n");
  const ReplayTrace other = given(
      "stream,more,size,address,action,time_us\r\n"
      "0,x,64,0xA0,alloc,1\r\n"
      "0,x,64,0xA0,free_completed,2");
  EXPECT_EQ(other.events, usual.events);
  EXPECT_EQ(usual.events.size(), 2u);
}

TEST_F(ReplayReaders, FreesOfMemoryFromBeforeTheTraceAreCountedAndLeftOut) {
  const ReplayTrace trace =
      given(pytorch_head + "1,free_completed,a0,64,0\n2,alloc,a0,64,0\n3,free_completed,a0,64,0\n");
  EXPECT_EQ(trace.events.size(), 2u);
  EXPECT_EQ(trace.frees_left_out, 1u);
  EXPECT_EQ(trace.live_peak_bytes, 64u);
}

TEST_F(ReplayReaders, BadLinesAreNamedByTheirNumber) {
  const auto refused = [&](const std::string& line) {
    return refusal(pytorch_head + "1,alloc,a0,64,0\n" + line + "\n");
  };
  const auto said = [](const std::string& why) {
    return "read trace: invalid argument (line 3: " + why + ")";
  };
  EXPECT_EQ(refused("2,alloc,b0,64"), said("not as many fields as the first line has"));
  EXPECT_EQ(refused("2,alloc,b0,64,0,0"), said("not as many fields as the first line has"));
  EXPECT_EQ(refused("x,alloc,b0,64,0"), said("time_us is not a number: 'x'"));
  EXPECT_EQ(refused("2,alloc,zz,64,0"), said("address is not a hexadecimal number: 'zz'"));
  EXPECT_EQ(refused("2,alloc,b0,-64,0"), said("size is not a number: '-64'"));
  EXPECT_EQ(refused("2,alloc,b0,99999999999999999999,0"),
            said("size is not a number: '99999999999999999999'"));
  EXPECT_EQ(refused("2,alloc,b0,64,"), said("stream is not a number: ''"));
  EXPECT_EQ(refused("2,allocate,b0,64,0"), said("no action is called 'allocate'"));
  EXPECT_EQ(refused("2,alloc,a0,64,0"), said("allocated again while it is live"));
  EXPECT_EQ(refused(std::string(5000, '1')), said("no line of a trace is that long"));
}

TEST_F(ReplayReaders, WhatIsNoTraceIsRefused) {
  EXPECT_EQ(refusal(""), "read trace: invalid argument (the file is empty)");
  for (const auto& [text, kind] : std::initializer_list<std::pair<std::string, std::string>>{
           {"hello\n", "in an unknown format"},
           {"time_us,action,size\n", "a table, but not one of PyTorch's"},
           {std::string(1000, '\0'), "in an unknown format"},
           {"PK\x03\x04", "a zip archive, as torch.save() writes them"},
           {"{\"a\": 1}\n", "JSON"},
           {"\x7f"
            "ELF\x02\n",
            "a program or a library"}}) {
    EXPECT_NE(refusal(text).find("it is " + kind), std::string::npos) << refusal(text);
  }
  EXPECT_NE(refusal("cuvmm[1.1] INFO: x\n").find("a log of cuvmm: `cuvmm stats`"),
            std::string::npos);
  const auto missing = replay::read_trace(in_folder("none"));
  EXPECT_EQ(missing.error().kind, ErrorKind::SystemFailed);
  EXPECT_EQ(replay::read_trace(folder_.path()).error().kind, ErrorKind::SystemFailed);
}

TEST_F(ReplayReaders, CompressedDataThatEndsTooEarlyOrIsDamagedIsRefused) {
  std::string text = pytorch_head;
  for (int i = 0; i < 5000; ++i) {
    text +=
        std::to_string(i * 7919 % 10007) + ",alloc," + std::to_string(1'000'000 + i) + ",512,0\n";
  }
  const std::string whole = compressed(text);
  EXPECT_EQ(given(whole).events.size(), 5000u);
  const std::string cut = refusal(whole.substr(0, whole.size() / 2));
  EXPECT_NE(cut.find("the compressed data ends too early"), std::string::npos) << cut;
  std::string damaged = whole;
  for (std::size_t i = whole.size() / 2; i < whole.size() / 2 + 64; ++i) damaged[i] = '\x55';
  const std::string refused = refusal(damaged);
  EXPECT_NE(refused.find("invalid argument (line "), std::string::npos) << refused;
}

TEST_F(ReplayReaders, RmmLogIsRead) {
  const ReplayTrace trace = given(rmm_head +
                                  "11,23:59:59.900000,allocate,0x7f00,256,0x1\n"
                                  "11,23:59:59:950000,allocate failure,(nil),99999,0x1\n"
                                  "12,00:00:00.100000,allocate,0x8f00,512,0\n"
                                  "11,00:00:01,free,0x7f00,256,0x1\n"
                                  "11,00:00:01.5,free,(nil),0,0x1\n");
  const std::vector<ReplayEvent> expected{
      {.time_us = 0, .size = 256, .block = 0, .stream = 1, .action = Action::Allocate},
      {.time_us = 200'000, .size = 512, .block = 1, .stream = 2, .action = Action::Allocate},
      {.time_us = 1'100'000, .size = 256, .block = 0, .stream = 1, .action = Action::Free}};
  EXPECT_EQ(trace.events, expected);
  EXPECT_EQ(trace.live_peak_bytes, 768u);
}

TEST_F(ReplayReaders, BadLinesOfAnRmmLogAreNamedByTheirNumber) {
  const auto refused = [&](const std::string& line) { return refusal(rmm_head + line + "\n"); };
  const auto said = [](const std::string& why) {
    return "read trace: invalid argument (line 2: " + why + ")";
  };
  EXPECT_EQ(refused("1,10:00:00.0,reallocate,0x7f00,256,0"),
            said("no action is called 'reallocate'"));
  for (const std::string time : {"10:00", "25:00:00", "10:00:00.1x", "noon", ""}) {
    EXPECT_EQ(refused("1," + time + ",allocate,0x7f00,256,0"),
              said("Time is not a time of day: '" + time + "'"));
  }
  EXPECT_EQ(refused("1,10:00:00.0,allocate,here,256,0"), said("Pointer is not an address: 'here'"));
  EXPECT_EQ(refused("1,10:00:00.0,allocate,0x7f00,2k,0"), said("Size is not a number: '2k'"));
  EXPECT_EQ(refused("1,10:00:00.0,allocate,0x7f00,256,main"),
            said("Stream is not a stream: 'main'"));
}

TraceRecord record(TraceEvent event, std::uint64_t time_us, std::uint64_t address, Size size = 0,
                   std::uint16_t flags = 0, std::uint64_t stream = 0) {
  return {.time = time_us * 1000,
          .event = event,
          .flags = flags,
          .device = 0,
          .address = address,
          .size = size,
          .stream = stream};
}

std::string bytes_of_trace(const std::string& path, const std::vector<TraceRecord>& records) {
  TraceSink sink = given_sink(path);
  sink.add(records, 0, 0);
  sink.finish(0, records.back().time, 1);
  return bytes_of_file(path);
}

TEST_F(ReplayReaders, OwnTraceGivesTheDeviceMemoryThatTheProgramHeld) {
  using enum TraceEvent;
  const auto ordered = trace_flag::stream_ordered;
  const ReplayTrace trace = given(bytes_of_trace(
      in_folder("own"),
      {record(Allocate, 1, 0x100, 64, ordered, 7),
       record(Allocate, 2, 0x900, 64, trace_flag::on_host), record(Create, 2, 0, 2 * MiB),
       record(AllocateFailed, 2, 0, GiB), record(Allocate, 3, 0x200, 32, trace_flag::native),
       record(Allocate, 4, 0x300, 32, ordered | trace_flag::captured),
       record(Free, 5, 0x100, 64, ordered, 8), record(Free, 6, 0x900),
       record(Allocate, 7, 0x200, 16)}));  // the free before it was lost
  const std::vector<ReplayEvent> expected{
      {.time_us = 1, .size = 64, .block = 0, .stream = 1, .action = Action::Allocate},
      {.time_us = 3,
       .size = 32,
       .block = 1,
       .stream = 2,
       .action = Action::Allocate,
       .kind = Kind::Blocking},
      {.time_us = 5, .size = 64, .block = 0, .stream = 1, .action = Action::Free},
      {.time_us = 7,
       .size = 32,
       .block = 1,
       .stream = 2,
       .action = Action::Free,
       .kind = Kind::Blocking},
      {.time_us = 7,
       .size = 16,
       .block = 2,
       .stream = 2,
       .action = Action::Allocate,
       .kind = Kind::Blocking}};
  EXPECT_EQ(trace.events, expected);
  EXPECT_EQ(trace.live_peak_bytes, 96u);
}

TEST_F(ReplayReaders, OwnTraceGivesTheProgramsChunksAtARefusal) {
  using enum TraceEvent;
  TraceRecord chunk = record(Create, 1, 0, 600 * MiB, trace_flag::native);
  chunk.other = 7;
  TraceRecord elsewhere = record(Create, 2, 0, 100 * MiB, trace_flag::native);
  elsewhere.other = 8;
  elsewhere.device = 1;
  TraceRecord refused = record(AllocateFailed, 3, 0, 300 * MiB);
  refused.result = 2;  // CUDA_ERROR_OUT_OF_MEMORY
  const ReplayTrace trace = given(bytes_of_trace(in_folder("own"), {chunk, elsewhere, refused}));
  ASSERT_EQ(trace.refusals.size(), 1u);
  EXPECT_EQ(trace.refusals[0].own_chunks, 600 * MiB);
}

TEST_F(ReplayReaders, OwnTraceOfSeveralDevicesIsRefused) {
  TraceRecord other = record(TraceEvent::Allocate, 2, 0x200, 64);
  other.device = 1;
  EXPECT_EQ(refusal(bytes_of_trace(in_folder("own"),
                                   {record(TraceEvent::Allocate, 1, 0x100, 64), other})),
            "read trace: not supported (it covers several devices)");
  // A refused request counts against the memory of its device.
  other.event = TraceEvent::AllocateFailed;
  other.result = 2;  // CUDA_ERROR_OUT_OF_MEMORY
  EXPECT_EQ(refusal(bytes_of_trace(in_folder("refused"),
                                   {record(TraceEvent::Allocate, 1, 0x100, 64), other})),
            "read trace: not supported (it covers several devices)");
}

}  // namespace
}  // namespace cuvmm::test
