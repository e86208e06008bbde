// SPDX-License-Identifier: Apache-2.0
// One operation of every kind that a program can do, and the record that it leaves.
#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "driver/cuda.hpp"
#include "preload/run_program.hpp"
#include "preload/traces.hpp"
#include "trace/reader.hpp"

namespace cuvmm::test {
namespace {

// The trace of events_program, and the handles that it printed, by name.
struct Told {
  std::vector<TraceRecord> records;
  std::map<std::string, std::uint64_t> handles;
  std::vector<std::string> calls;

  std::uint64_t operator[](const char* name) const {
    const auto found = handles.find(name);
    EXPECT_NE(found, handles.end()) << name;
    return found != handles.end() ? found->second : 0;
  }
};

const Told& told() {
  static const Told result = [] {
    Told told;
    const std::string path = own_folder() + "/run.trace";
    const Finished finished = run_program(
        {program("events")}, under_cuvmm({{"VMM_MODE", "MONITOR"}, {"VMM_TRACE_FILE", path}}));
    EXPECT_EQ(finished.status, 0) << finished.out << finished.err;
    std::istringstream lines{finished.out};
    std::string name;
    for (std::uint64_t value = 0; lines >> name >> value;) told.handles[name] = value;
    auto trace = TraceReader::open(path);
    EXPECT_TRUE(trace.ok());
    if (!trace.ok()) return told;
    EXPECT_TRUE(trace->for_each([&](const TraceRecord& one) { told.records.push_back(one); }).ok());
    for (const TraceRecord& one : told.records) {
      told.calls.emplace_back(trace->header().call(one.call));
    }
    return told;
  }();
  return result;
}

// The n-th record of calls to a function.
TraceRecord record_of(const char* call, std::size_t n = 0) {
  const Told& all = told();
  for (std::size_t i = 0; i < all.records.size(); ++i) {
    if (all.calls[i] == call && n-- == 0) return all.records[i];
  }
  ADD_FAILURE() << call << " left no record";
  return {};
}

void expect_event(const TraceRecord& record, TraceEvent event) {
  EXPECT_STREQ(name_of(record.event), name_of(event));
  EXPECT_EQ(record.result, 0);
}

TEST(EventOf, ACopyNamesBothEndsItsBytesAndItsStream) {
  const TraceRecord up = record_of("cuMemcpyHtoD");
  expect_event(up, TraceEvent::Copy);
  EXPECT_EQ(up.address, told()["memory"]);
  EXPECT_EQ(up.size, 4096u);
  EXPECT_EQ(up.stream, 1u);

  const TraceRecord across = record_of("cuMemcpyDtoDAsync");
  expect_event(across, TraceEvent::Copy);
  EXPECT_EQ(across.address, told()["other"]);
  EXPECT_EQ(across.other, told()["memory"]);
  EXPECT_EQ(across.stream, told()["stream"]);

  const TraceRecord shaped = record_of("cuMemcpy2DAsync");
  expect_event(shaped, TraceEvent::Copy);
  EXPECT_EQ(shaped.address, told()["other"]);
  EXPECT_EQ(shaped.other, told()["memory"]);
  EXPECT_EQ(shaped.size, 32u * 10);
}

TEST(EventOf, ASetNamesItsBytesAndItsValue) {
  const TraceRecord set = record_of("cuMemsetD32Async");
  expect_event(set, TraceEvent::Set);
  EXPECT_EQ(set.address, told()["memory"]);
  EXPECT_EQ(set.size, 400u);
  EXPECT_EQ(set.other, 9u);
  EXPECT_EQ(set.stream, told()["stream"]);
}

TEST(EventOf, ALaunchNamesItsFunctionThreadsAndSharedMemory) {
  const TraceRecord launch = record_of("cuLaunchKernel");
  expect_event(launch, TraceEvent::Launch);
  EXPECT_EQ(launch.address, told()["function"]);
  EXPECT_EQ(launch.size, 2u * 3 * 32);
  EXPECT_EQ(launch.detail, 128u);
  EXPECT_EQ(launch.stream, told()["stream"]);
  EXPECT_GT(launch.other, 0u);
  EXPECT_NE(record_of("cuLaunchHostFunc").flags & trace_flag::on_host, 0);
}

TEST(EventOf, OrderNamesEventsStreamsAndValues) {
  const TraceRecord record = record_of("cuEventRecord");
  expect_event(record, TraceEvent::EventRecord);
  EXPECT_EQ(record.address, told()["event"]);
  EXPECT_EQ(record.stream, told()["stream"]);
  const TraceRecord wait = record_of("cuStreamWaitEvent");
  expect_event(wait, TraceEvent::StreamWait);
  EXPECT_EQ(wait.address, told()["event"]);
  EXPECT_EQ(wait.stream, 1u);
  const TraceRecord value = record_of("cuStreamWriteValue32");
  expect_event(value, TraceEvent::ValueWrite);
  EXPECT_EQ(value.address, told()["memory"]);
  EXPECT_EQ(value.other, 5u);
  expect_event(record_of("cuStreamWaitValue32"), TraceEvent::ValueWait);
}

TEST(EventOf, AWaitSaysHowLongItTook) {
  for (const char* call : {"cuEventSynchronize", "cuStreamSynchronize", "cuCtxSynchronize"}) {
    const TraceRecord wait = record_of(call);
    expect_event(wait, TraceEvent::Wait);
    EXPECT_GT(wait.other, 0u) << call;
  }
  EXPECT_EQ(record_of("cuEventSynchronize").address, told()["event"]);
  EXPECT_EQ(record_of("cuStreamSynchronize").stream, told()["stream"]);
}

TEST(EventOf, ACaptureMarksTheWorkThatItTook) {
  const TraceRecord begin = record_of("cuStreamBeginCapture");
  expect_event(begin, TraceEvent::CaptureBegin);
  EXPECT_EQ(begin.detail, static_cast<std::uint32_t>(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  EXPECT_NE(record_of("cuMemsetD8Async").flags & trace_flag::captured, 0);
  EXPECT_EQ(record_of("cuMemsetD32Async").flags & trace_flag::captured, 0);
  const TraceRecord end = record_of("cuStreamEndCapture");
  expect_event(end, TraceEvent::CaptureEnd);
  EXPECT_EQ(end.address, told()["graph"]);
  const TraceRecord launch = record_of("cuGraphLaunch");
  expect_event(launch, TraceEvent::GraphLaunch);
  EXPECT_EQ(launch.address, told()["executable"]);
  EXPECT_EQ(launch.stream, told()["stream"]);
  const TraceRecord mode = record_of("cuThreadExchangeStreamCaptureMode");
  expect_event(mode, TraceEvent::CaptureMode);
  EXPECT_EQ(mode.other, static_cast<std::uint64_t>(CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_EQ(mode.detail, static_cast<std::uint32_t>(CU_STREAM_CAPTURE_MODE_RELAXED));
}

TEST(EventOf, ContextsStreamsAndEventsBeginAndEnd) {
  EXPECT_EQ(record_of("cuCtxCreate").address, told()["context"]);
  EXPECT_EQ(record_of("cuCtxDestroy").address, told()["context"]);
  EXPECT_NE(record_of("cuCtxCreate").context, 0u);
  EXPECT_EQ(record_of("cuCtxDestroy").context, record_of("cuCtxCreate").context);
  EXPECT_EQ(record_of("cuStreamCreateWithPriority").stream, told()["stream"]);
  EXPECT_EQ(record_of("cuStreamDestroy").stream, told()["stream"]);
  EXPECT_EQ(record_of("cuEventCreate").detail, static_cast<std::uint32_t>(CU_EVENT_DISABLE_TIMING));
  EXPECT_EQ(record_of("cuEventDestroy").address, told()["event"]);
  expect_event(record_of("cuDevicePrimaryCtxRetain"), TraceEvent::PrimaryRetain);
  EXPECT_EQ(record_of("cuDevicePrimaryCtxRetain").context, record_of("cuMemAlloc").context);
  expect_event(record_of("cuDevicePrimaryCtxRelease"), TraceEvent::PrimaryRelease);
}

TEST(EventOf, MemoryIsSharedAndQueried) {
  const TraceRecord exported = record_of("cuIpcGetMemHandle");
  expect_event(exported, TraceEvent::Export);
  EXPECT_EQ(exported.address, told()["memory"]);
  EXPECT_EQ(record_of("cuMemGetInfo").other, told()["total"]);
  const TraceRecord range = record_of("cuMemGetAddressRange");
  EXPECT_EQ(range.address, told()["memory"] + 8);
  EXPECT_EQ(range.size, 4096u);
}

TEST(EventOf, APoolBeginsChangesAndEnds) {
  EXPECT_EQ(record_of("cuMemPoolCreate").address, told()["pool"]);
  const TraceRecord change = record_of("cuMemPoolSetAttribute");
  expect_event(change, TraceEvent::PoolChange);
  EXPECT_EQ(change.other, static_cast<std::uint64_t>(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD));
  EXPECT_EQ(change.size, 1u << 20);
  EXPECT_EQ(record_of("cuMemPoolTrimTo").other, 12345u);
  EXPECT_EQ(record_of("cuMemPoolDestroy").address, told()["pool"]);
}

TEST(EventOf, VirtualMemoryIsReservedMappedAndFreed) {
  constexpr std::uint64_t granule = 2 << 20;
  const TraceEvent events[] = {TraceEvent::Reserve,  TraceEvent::Create, TraceEvent::Map,
                               TraceEvent::Access,   TraceEvent::Unmap,  TraceEvent::Release,
                               TraceEvent::Unreserve};
  const char* calls[] = {"cuMemAddressReserve", "cuMemCreate",  "cuMemMap",        "cuMemSetAccess",
                         "cuMemUnmap",          "cuMemRelease", "cuMemAddressFree"};
  for (std::size_t i = 0; i < std::size(events); ++i) {
    const TraceRecord record = record_of(calls[i]);
    expect_event(record, events[i]);
    EXPECT_NE(record.flags & trace_flag::native, 0);
    EXPECT_EQ(record.size, record.event == TraceEvent::Release ? 0 : granule) << calls[i];
  }
  EXPECT_EQ(record_of("cuMemMap").address, told()["reserved"]);
  EXPECT_EQ(record_of("cuMemMap").other, record_of("cuMemCreate").other);
}

TEST(EventOf, EveryCallNamesItsTarget) {
  const TraceRecord launch = record_of("cuLaunchKernel");
  EXPECT_EQ(launch.device, 0);
  EXPECT_GT(launch.context, 0u);
  EXPECT_EQ(record_of("cuMemcpyHtoD").context, launch.context);
}

TEST(Log, HasTheSameEventsAsTheTrace) {
  const Finished finished = run_program(
      {program("events")}, under_cuvmm({{"VMM_MODE", "MONITOR"}, {"VMM_LOG_LEVEL", "DEBUG"}}));
  EXPECT_EQ(finished.status, 0);
  EXPECT_NE(finished.err.find(" INFO "), std::string::npos);
  for (const char* line : {"launch function=0x", "copy to=0x", "map address=0x", "wait event=",
                           "graph_launch graph=0x", "capture_begin", "call=cuLaunchKernel"}) {
    EXPECT_NE(finished.err.find(line), std::string::npos) << line;
  }
}

TEST(Log, HasOnlyMemoryEventsAtInfo) {
  const Finished finished = run_program(
      {program("events")}, under_cuvmm({{"VMM_MODE", "MONITOR"}, {"VMM_LOG_LEVEL", "INFO"}}));
  for (const char* line :
       {"allocate address=0x", "free address=0x", "map address=0x", "unmap address=0x"}) {
    EXPECT_NE(finished.err.find(line), std::string::npos) << line;
  }
  EXPECT_EQ(finished.err.find("launch"), std::string::npos);
  EXPECT_EQ(finished.err.find(" DEBUG "), std::string::npos);
}

}  // namespace
}  // namespace cuvmm::test
