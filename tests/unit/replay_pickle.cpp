// SPDX-License-Identifier: Apache-2.0
// Python's pickles as data, including PyTorch's memory snapshots.
#include "replay/pickle.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "replay/read_trace.hpp"
#include "support/scale.hpp"
#include "unit/trace_world.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace cuvmm::test {
namespace {

using namespace std::string_literals;
using replay::Pickle;
using replay::ReplayTrace;

std::string refusal(const std::string& bytes) {
  const auto read = Pickle::read(bytes);
  return read ? "it was read" : read.error().text();
}

// Each value as pickle.dumps() writes it, in each protocol.
TEST(Pickle, ValuesOfEveryProtocolAreRead) {
  for (
      const std::string& bytes :
      {"\x80\x02}q\0(X\1\0\0\0aq\1K\7X\1\0\0\0bq\2]q\3(J\xff\xff\xff\xffM\x01\x02\x8a\5\0\0\0\0\1eu."s,
       "\x80\x04\x95\x1e\0\0\0\0\0\0\0}\x94(\x8c\1a\x94K\7\x8c\1b\x94]\x94(J\xff\xff\xff\xffM\x01\x02\x8a\5\0\0\0\0\1eu."s,
       "\x80\x05\x95\x1e\0\0\0\0\0\0\0}\x94(\x8c\1a\x94K\7\x8c\1b\x94]\x94(J\xff\xff\xff\xffM\x01\x02\x8a\5\0\0\0\0\1eu."s}) {
    const auto read = Pickle::read(bytes);
    ASSERT_TRUE(read) << read.error().text();
    const auto a = read->get(read->root(), "a");
    ASSERT_TRUE(a);
    EXPECT_EQ(read->number(*a), 7);
    const auto* const items = read->items(*read->get(read->root(), "b"));
    ASSERT_NE(items, nullptr);
    ASSERT_EQ(items->size(), 3u);
    EXPECT_EQ(read->number((*items)[0]), -1);
    EXPECT_EQ(read->number((*items)[1]), 513);
    EXPECT_EQ(read->number((*items)[2]), std::int64_t{1} << 32);
    EXPECT_FALSE(read->get(read->root(), "c"));
  }
}

TEST(Pickle, TuplesConstantsAndMemosAreRead) {
  const std::string bytes = "\x80\x02(X\1\0\0\0xq\0\x88\x89NG\x3f\xf0\0\0\0\0\0\0h\0K\1K\2\x86t."s;
  const auto read = Pickle::read(bytes);
  ASSERT_TRUE(read) << read.error().text();
  const auto* const items = read->items(read->root());
  ASSERT_NE(items, nullptr);
  ASSERT_EQ(items->size(), 7u);
  EXPECT_EQ(read->text((*items)[0]), "x");
  EXPECT_EQ(read->number((*items)[1]), 1);
  EXPECT_EQ(read->number((*items)[2]), 0);
  EXPECT_FALSE(read->number((*items)[3]));
  EXPECT_FALSE(read->number((*items)[4]));
  EXPECT_EQ((*items)[5], (*items)[0]);
  EXPECT_EQ(read->items((*items)[6])->size(), 2u);
}

TEST(Pickle, OpcodesThatRunCodeAreRefusedByName) {
  const std::string calls_system =
      "\x80\x02"
      "cos\nsystem\nq\0X\2\0\0\0idq\1\x85q\2Rq\3."s;
  EXPECT_EQ(refusal(calls_system),
            "read trace: invalid argument (the pickle, at byte 2: GLOBAL would run Python "
            "code; cuvmm reads only plain values)");
  for (const auto& [code, name] :
       std::initializer_list<std::pair<const char*, const char*>>{{"\x93", "STACK_GLOBAL"},
                                                                  {"R", "REDUCE"},
                                                                  {"b", "BUILD"},
                                                                  {"i", "INST"},
                                                                  {"o", "OBJ"},
                                                                  {"\x81", "NEWOBJ"},
                                                                  {"\x92", "NEWOBJ_EX"},
                                                                  {"P", "PERSID"},
                                                                  {"Q", "BINPERSID"},
                                                                  {"\x82", "EXT1"}}) {
    const std::string said = refusal("\x80\x04NN"s + code + "x\n.");
    EXPECT_NE(said.find("at byte 4: "s + name + " would run Python code"), std::string::npos)
        << said;
  }
  EXPECT_NE(refusal("\x80\x02I1\n.").find("INT is of protocol 0 or 1"), std::string::npos);
  EXPECT_NE(refusal("\x80\x09N.").find("protocol 9; 2 to 5 are read"), std::string::npos);
}

TEST(Pickle, DamagedPicklesAreRefusedWithTheOffset) {
  for (const auto& [bytes, why] : std::initializer_list<std::pair<std::string, const char*>>{
           {"", "at byte 0: the file ends too early"},
           {"\x80\x02", "at byte 2: the file ends too early"},
           {"\x80\x02.", "the stack is empty"},
           {"\x80\x02X\xff\0\0\0abc.", "the file ends too early"},
           {"\x80\x02(.", "the stack is empty"},
           {"\x80\x02Na.", "the stack is empty"},
           {"\x80\x02NNa.", "items for what cannot take them"},
           {"\x80\x02}(Nu.", "a key without a value"},
           {"\x80\x02(Nd.", "a key without a value"},
           {"\x80\x02h\5.", "nothing in that memo"},
           {"\x80\x02Nr\xff\xff\xff\xff.", "a memo that is too large"},
           {"\x80\x02t.", "no mark on the stack"}}) {
    const std::string said = refusal(bytes);
    EXPECT_NE(said.find(why), std::string::npos) << said;
  }
}

TEST(Pickle, NoMoreMemoryIsTakenThanIsAllowed) {
  std::string bytes = "\x80\x02]("s;
  for (int i = 0; i < 10'000; ++i) bytes += ']';
  bytes += "e.";
  ASSERT_TRUE(Pickle::read(bytes));
  const auto refused = Pickle::read(bytes, 64 * KiB);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::OutOfMemory);
}

TEST(Pickle, LargeDictsAreSearchedByAnIndexWithTheSameResult) {
  constexpr int count = 100'000;
  std::string bytes = "\x80\x02}("s;
  for (int i = 0; i < count; ++i) {
    const std::string key = std::to_string(i % (count / 2));
    bytes += "U"s + static_cast<char>(key.size()) + key + "J";
    bytes.append(reinterpret_cast<const char*>(&i), sizeof i);
  }
  bytes += "u.";
  const auto pickle = Pickle::read(bytes);
  ASSERT_TRUE(pickle);
  for (int i = 0; i < count; ++i) {  // takes minutes if each scans the dict
    const auto value = pickle->get(pickle->root(), std::to_string(i));
    ASSERT_EQ(value.has_value(), i < count / 2) << i;
    ASSERT_TRUE(!value || pickle->number(*value) == i + count / 2) << i;
  }
  EXPECT_FALSE(pickle->get(pickle->root(), std::string(1000, 'x')));
}

// Writes snapshots as pickle.dumps(VALUE, 2) would.
class Made {
 public:
  Made& dict() { return raw("}("); }
  Made& end_dict() { return raw("u"); }
  Made& list() { return raw("]("); }
  Made& end_list() { return raw("e"); }
  Made& text(const std::string& words) {
    return raw("X" + std::string{static_cast<char>(words.size()), 0, 0, 0} + words);
  }
  Made& number(std::int64_t value) {
    return raw("\x8a\x08" + std::string{reinterpret_cast<const char*>(&value), sizeof value});
  }
  Made& field(const std::string& name, std::int64_t value) { return text(name).number(value); }
  Made& event(const std::string& action, std::int64_t time_us, std::int64_t address,
              std::int64_t size) {
    dict().text("action").text(action).field("addr", address).field("size", size);
    field("stream", 0).field("time_us", time_us);
    return text("frames").list().end_list().end_dict();
  }
  Made& oom(std::int64_t time_us, std::int64_t size, std::int64_t free) {
    dict().text("action").text("oom").field("size", size).field("stream", 0);
    return field("time_us", time_us).field("device_free", free).end_dict();
  }
  std::string snapshot(const std::string& held, int devices = 1) const {
    Made all;
    all.dict().text("segments").raw(held).text("device_traces").list();
    for (int i = 0; i < devices; ++i) all.list().raw(bytes_).end_list();
    all.end_list().end_dict();
    return "\x80\x02" + all.bytes_ + ".";
  }
  Made& raw(const std::string& bytes) {
    bytes_ += bytes;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

const std::string nothing_held = "]";

std::string refused_snapshot(const std::string& bytes) {
  const auto read = replay::read_pytorch_snapshot(bytes);
  return read ? "it was read" : read.error().text();
}

TEST(PytorchSnapshot, HasAllocationsAndPytorchsReservedMemory) {
  Made events;
  events.event("segment_alloc", 100, 0x10000, 4 * MiB)
      .event("alloc", 101, 0x10000, 1 * MiB)
      .event("alloc", 102, 0x20000, 2 * MiB)
      .event("free_requested", 103, 0x10000, 1 * MiB)
      .event("free_completed", 104, 0x10000, 1 * MiB)
      .event("snapshot", 105, 0, 0)
      .oom(106, 8 * MiB, 3 * MiB);
  Made held;
  held.list().dict().field("device", 0).field("address", 0x10000);
  held.field("total_size", 4 * MiB).field("stream", 0).text("blocks").list();
  held.dict().field("size", 2 * MiB).field("requested_size", 2 * MiB).field("address", 0x20000);
  held.text("state").text("active_allocated").end_dict().end_list().end_dict().end_list();
  const auto trace = replay::read_pytorch_snapshot(events.snapshot(held.bytes()));
  ASSERT_TRUE(trace) << trace.error().text();
  EXPECT_EQ(trace->source, replay::Source::PytorchSnapshot);
  EXPECT_EQ(trace->allocations, 2u);
  EXPECT_EQ(trace->events.size(), 3u);
  EXPECT_EQ(trace->live_peak_bytes, 3 * MiB);
  EXPECT_EQ(trace->reserved_peak_bytes, 4 * MiB);
  EXPECT_EQ(trace->duration_us, 6u);
  ASSERT_EQ(trace->refusals.size(), 1u);
  EXPECT_EQ(trace->refusals[0].size, 8 * MiB);
  EXPECT_EQ(trace->refusals[0].reserved, 4 * MiB);
  EXPECT_EQ(trace->refusals[0].available, 3 * MiB);
  EXPECT_EQ(trace->refusals[0].before, 3u);
}

// The history keeps only the last events.
TEST(PytorchSnapshot, BlocksFromBeforeTheHistoryAreLiveFromItsBeginning) {
  Made events;
  events.event("free_completed", 1, 0x50000, 3 * MiB).event("alloc", 2, 0x50000, 1 * MiB);
  Made held;
  held.list().dict().field("device", 0).field("address", 0x70000);
  held.field("total_size", 20 * MiB).field("stream", 0).text("blocks").list();
  held.dict().field("size", 5 * MiB).text("state").text("active_allocated").end_dict();
  held.dict().field("size", 15 * MiB).text("state").text("inactive").end_dict();
  held.end_list().end_dict().end_list();
  const auto trace = replay::read_pytorch_snapshot(events.snapshot(held.bytes()));
  ASSERT_TRUE(trace) << trace.error().text();
  EXPECT_EQ(trace->live_peak_bytes, 8 * MiB);
  EXPECT_EQ(trace->frees_left_out, 0u);
  EXPECT_EQ(trace->reserved_peak_bytes, 20 * MiB);
}

// Sums would wrap around otherwise.
TEST(PytorchSnapshot, NoRequestExceedsItsBlock) {
  Made events;
  events.event("alloc", 1, 0x50000, 1 * MiB);
  for (const std::int64_t hostile : {std::int64_t{-1}, std::int64_t{1} << 62}) {
    Made held;
    held.list().dict().field("device", 0).field("address", 0x7000000).field("stream", 0);
    held.text("blocks").list();
    for (int i = 0; i < 5; ++i) {
      held.dict().field("size", 2 * MiB).field("requested_size", hostile);
      held.text("state").text("active_allocated").end_dict();
    }
    held.end_list().end_dict().end_list();
    const auto trace = replay::read_pytorch_snapshot(events.snapshot(held.bytes()));
    ASSERT_TRUE(trace) << trace.error().text();
    EXPECT_EQ(trace->live_peak_bytes, 11 * MiB);
  }
}

TEST(PytorchSnapshot, FilesThatAreNoneAreNamed) {
  EXPECT_NE(refused_snapshot("\x80\x02].").find("not a memory snapshot of PyTorch's"),
            std::string::npos);
  EXPECT_NE(refused_snapshot(Made{}.snapshot(nothing_held)).find("_record_memory_history"),
            std::string::npos);
  Made one;
  one.event("alloc", 1, 0x1000, 512);
  EXPECT_NE(refused_snapshot(one.snapshot(nothing_held, 2)).find("several devices"),
            std::string::npos);
  Made unknown;
  unknown.event("allocate", 1, 0x1000, 512);
  EXPECT_NE(refused_snapshot(unknown.snapshot(nothing_held))
                .find("event 1: no action is called 'allocate'"),
            std::string::npos);
  Made negative;
  negative.event("alloc", 1, 0x1000, -5);
  EXPECT_NE(refused_snapshot(negative.snapshot(nothing_held)).find("size is out of range"),
            std::string::npos);
}

// A fallback for libFuzzer, which does it better.
TEST(PytorchSnapshot, MutationsAreReadOrRefused) {
  std::vector<std::string> corpus;
  for (const auto& entry :
       std::filesystem::directory_iterator{CUVMM_SOURCE_DIR "/tests/fuzz/pickle"}) {
    std::ifstream file{entry.path(), std::ios::binary};
    corpus.emplace_back(std::istreambuf_iterator<char>{file}, std::istreambuf_iterator<char>{});
  }
  ASSERT_GE(corpus.size(), 5u);
  std::mt19937_64 random{seed()};
  PRINT_SEED_ON_FAILURE();
  for (std::uint64_t i = 0; i < scaled(30'000); ++i) {
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
