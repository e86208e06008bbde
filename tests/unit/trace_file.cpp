// SPDX-License-Identifier: Apache-2.0
// A trace in the file system: which files it must not touch, and what happens to it when there is
// no room.
#include "trace/trace_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <csignal>

#include "base/file.hpp"
#include "base/log.hpp"
#include "support/lowered_limit.hpp"
#include "trace/writer.hpp"
#include "unit/trace_world.hpp"

namespace cuvmm::test {
namespace {

class TraceAmongFiles : public TraceFolder {
 protected:
  void SetUp() override {
    TraceFolder::SetUp();
    ASSERT_TRUE(set_up_log({.file = log()}));
  }
  void TearDown() override {
    EXPECT_TRUE(set_up_log({}));
    TraceFolder::TearDown();
  }
  std::string log() const { return beside_.in("log"); }
  std::size_t warnings() const {
    const std::string text = bytes_of_file(log());
    std::size_t count = 0;
    for (std::size_t at = 0; (at = text.find(" WARNING ", at)) != std::string::npos; ++at) ++count;
    return count;
  }

 private:
  OwnFolder beside_;
};

struct stat facts_of(const std::string& path) {
  struct stat facts {};
  EXPECT_EQ(::lstat(path.c_str(), &facts), 0) << path;
  return facts;
}

TEST_F(TraceAmongFiles, IsPrivateToItsOwner) {
  const mode_t before = ::umask(0);
  const auto file = create_trace_file(in_folder("t"));
  ::umask(before);
  ASSERT_TRUE(file);
  EXPECT_EQ(facts_of(in_folder("t")).st_mode & 07777, 0600u);
  EXPECT_EQ(::fcntl(file->fd.number(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  EXPECT_GE(file->fd.number(), 200) << "out of the program's way";
  EXPECT_FALSE(file->name_was_taken);
}

TEST_F(TraceAmongFiles, AnExistingFileIsKept) {
  write_file(in_folder("t"), "somebody's");
  const std::string own = in_folder("t") + "." + std::to_string(::getpid());
  for (const std::string& expected : {own, own + ".1", own + ".2"}) {
    const auto file = create_trace_file(in_folder("t"));
    ASSERT_TRUE(file) << file.error().text();
    EXPECT_EQ(file->path, expected);
    EXPECT_TRUE(file->name_was_taken);
  }
  EXPECT_EQ(bytes_of_file(in_folder("t")), "somebody's");
  EXPECT_EQ(files_in_folder(), 4u);
}

TEST_F(TraceAmongFiles, NameMayHoldProcessAndHost) {
  const auto file = create_trace_file(in_folder("%h-%p"));
  ASSERT_TRUE(file);
  EXPECT_EQ(file->path, in_folder(expand_file_name("%h") + "-" + std::to_string(::getpid())));
}

TEST_F(TraceAmongFiles, LinkFolderAndPipeAreRefused) {
  write_file(in_folder("target"), "precious");
  ASSERT_EQ(::symlink(in_folder("target").c_str(), in_folder("link").c_str()), 0);
  ASSERT_EQ(::symlink(in_folder("nothing").c_str(), in_folder("dangling").c_str()), 0);
  ASSERT_EQ(::mkdir(in_folder("folder").c_str(), 0700), 0);
  ASSERT_EQ(::mkfifo(in_folder("pipe").c_str(), 0600), 0);
  for (const char* name : {"link", "dangling", "folder", "pipe"}) {
    EXPECT_FALSE(create_trace_file(in_folder(name))) << name;
  }
  for (const char* name : {"folder", "none/t"}) {
    const auto refused = create_trace_file(in_folder(name));
    ASSERT_FALSE(refused) << name;
    EXPECT_NE(refused.error().text().find(in_folder(name)), std::string::npos)
        << refused.error().text();
  }
  EXPECT_FALSE(create_trace_file(""));
  EXPECT_EQ(bytes_of_file(in_folder("target")), "precious");
  EXPECT_EQ(files_in_folder(), 5u);
}

TEST_F(TraceAmongFiles, FullDiskAtTheStartIsAnErrorAndLeavesNoFile) {
  const auto full = TraceSink::create("/dev/full", small_header(), 1 * GiB);
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().text(), "write trace file: No space left on device");
}

TEST_F(TraceAmongFiles, MayBeADevice) {
  TraceSink sink = given_sink("/dev/null");
  sink.add(std::vector{record_number(0, 0)}, 0, 0);
  sink.finish(0, 1, 1);
  EXPECT_EQ(sink.records(), 1u);
}

TEST_F(TraceAmongFiles, NoRoomForTheHeaderLeavesNoFile) {
  const LoweredLimit disk{RLIMIT_FSIZE, 100};
  EXPECT_FALSE(TraceSink::create(in_folder("t"), small_header(), 1 * GiB));
  EXPECT_EQ(files_in_folder(), 0u);
}

TEST_F(TraceAmongFiles, FullDiskEndsTheTraceButNotTheProgram) {
  constexpr Size room = 100'000;
  const LoweredLimit disk{RLIMIT_FSIZE, room};
  auto writer = TraceWriter::start({.file = in_folder("t"), .ring_records = 1 << 16});
  ASSERT_TRUE(writer) << writer.error().text();
  constexpr std::uint64_t events = 5000;  // 320,000 bytes
  for (std::uint64_t i = 0; i < events; ++i) CUVMM_TRACE(.address = i);
  ASSERT_TRUE((*writer)->flush(in_time));
  for (std::uint64_t i = 0; i < events; ++i) CUVMM_TRACE(.address = events + i);
  ASSERT_TRUE((*writer)->finish(in_time));

  const TraceTotals totals = (*writer)->totals();
  TraceReader trace = opened(in_folder("t"));
  const auto records = records_of(trace);
  EXPECT_GE(records.size(), trace_format::records_in_a_block);
  EXPECT_EQ(totals.records, records.size());
  EXPECT_EQ(totals.records + totals.dropped, 2 * events + 1);  // and the thread's own record
  for (std::uint64_t i = 1; i < records.size(); ++i) EXPECT_EQ(records[i].address, i - 1);
  EXPECT_LE(std::filesystem::file_size(in_folder("t")), room);
  EXPECT_TRUE(trace.health().is_finished) << "the end still fits where half a block was";
  EXPECT_TRUE(trace.health().ran_out_of_space);
  EXPECT_EQ(trace.health().dropped, totals.dropped);
  EXPECT_EQ(warnings(), 1u);
}

TEST_F(TraceAmongFiles, SizeCapHoldsAndLaterEventsAreCounted) {
  constexpr Size cap = 200'000;
  auto writer =
      TraceWriter::start({.file = in_folder("t"), .ring_records = 1 << 16, .size_cap = cap});
  ASSERT_TRUE(writer);
  constexpr std::uint64_t events = 10'000;
  for (std::uint64_t i = 0; i < events; ++i) CUVMM_TRACE(.address = i);
  ASSERT_TRUE((*writer)->finish(in_time));

  const TraceTotals totals = (*writer)->totals();
  TraceReader trace = opened(in_folder("t"));
  const auto records = records_of(trace);
  EXPECT_GT(records.size(), cap / sizeof(TraceRecord) / 2);
  EXPECT_EQ(records.size() + totals.dropped, events + 1);
  EXPECT_LE(std::filesystem::file_size(in_folder("t")), cap);
  EXPECT_TRUE(trace.health().is_finished);
  EXPECT_TRUE(trace.health().reached_size_cap);
  EXPECT_EQ(trace.health().dropped, totals.dropped);
  EXPECT_EQ(warnings(), 1u);
}

TEST_F(TraceAmongFiles, ClosedByTheProgramIsNotWrittenToAgain) {
  auto writer = TraceWriter::start({.file = in_folder("t"), .interval = std::chrono::hours{1}});
  ASSERT_TRUE(writer);
  CUVMM_TRACE(.address = 1);
  ASSERT_TRUE((*writer)->flush(in_time));

  // As daemons do: all descriptors closed, and their numbers reused.
  const std::string theirs = in_folder("theirs");
  for (const auto& entry : std::filesystem::directory_iterator{"/proc/self/fd"}) {
    std::error_code none;
    if (std::filesystem::read_symlink(entry.path(), none) != in_folder("t")) continue;
    const int number = std::stoi(entry.path().filename());
    const Fd other{::open(theirs.c_str(), O_WRONLY | O_CREAT, 0600)};
    ASSERT_EQ(::dup2(other.number(), number), number);
  }
  CUVMM_TRACE(.address = 2);
  ASSERT_TRUE((*writer)->finish(in_time));
  EXPECT_EQ(std::filesystem::file_size(theirs), 0u);
  EXPECT_EQ((*writer)->totals().dropped, 1u);
  EXPECT_EQ(records_of(in_folder("t")).size(), 2u);
  EXPECT_EQ(warnings(), 1u);
}

}  // namespace
}  // namespace cuvmm::test
