// SPDX-License-Identifier: Apache-2.0
#include "trace/sink.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/log.hpp"
#include "base/without_signals.hpp"

namespace cuvmm {
namespace {

using namespace trace_format;

constexpr std::size_t enough_to_write = 256 * KiB;
constexpr Size room_for_end = sizeof(BlockHeader) + sizeof(End);

// Returns the number of bytes written; if not all, errno has the reason.
std::size_t write_at(Size place, std::string_view bytes, int file) {
  const WithoutWriteSignals quiet;
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t written =
        ::pwrite(file, bytes.data() + done, bytes.size() - done, static_cast<off_t>(place + done));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) break;
    done += static_cast<std::size_t>(written);
  }
  return done;
}

}  // namespace

Result<TraceSink> TraceSink::create(std::string_view pattern, const TraceHeader& header,
                                    Size size_cap) {
  const std::string bytes = encode(header);
  if (bytes.size() > largest_header) {
    return Error::invalid("create trace file", "its header is too large", bytes.size());
  }
  TraceSink sink{TRY(create_trace_file(pattern)), size_cap};
  if (write_at(0, bytes, sink.file_.fd.number()) != bytes.size()) {
    const Error why{
        .kind = ErrorKind::SystemFailed, .system_code = errno, .doing = "write trace file"};
    if (!sink.file_.is_device) ::unlink(sink.path().c_str());
    return why;
  }
  sink.size_ = bytes.size();
  sink.buffer_.reserve(enough_to_write + records_in_a_block * sizeof(TraceRecord) + 2 * unit);
  return sink;
}

void TraceSink::add(std::span<const TraceRecord> records, std::uint32_t thread,
                    std::uint64_t dropped) {
  if (records.empty()) return;
  if (takes_more() && !has_room(records.size_bytes())) stop(Stop::SizeCap);
  if (!takes_more()) {
    lost_ += records.size();
    return;
  }
  append({.type = BlockType::Records,
          .records = static_cast<std::uint32_t>(records.size()),
          .thread = thread,
          .first_time = records.front().time,
          .last_time = records.back().time,
          .dropped = dropped + lost_},
         std::as_bytes(records));
}

void TraceSink::add(const TraceFacts& facts) {
  const std::string sections = encode(facts);
  if (!takes_more() || sections.empty() || !has_room(sections.size())) return;
  append({.type = BlockType::Sections, .thread = many_threads}, std::as_bytes(std::span{sections}));
}

bool TraceSink::has_room(std::size_t payload) const {
  return payload <= largest_payload &&
         size_ + buffer_.size() + sizeof(BlockHeader) + payload + room_for_end <= size_cap_;
}

void TraceSink::append(BlockHeader header, std::span<const std::byte> payload) {
  header.magic = block_magic;
  header.payload_size = static_cast<std::uint32_t>(payload.size());
  header.number = blocks_++;
  seal(header, payload);
  buffer_.append(reinterpret_cast<const char*>(&header), sizeof header);
  buffer_.append(reinterpret_cast<const char*>(payload.data()), payload.size());
  waiting_.push_back({buffer_.size(), header.records});
  if (buffer_.size() >= enough_to_write) flush();
}

void TraceSink::flush() {
  if (buffer_.empty()) return;
  // If the program has closed all descriptors, our number may now be one of its files.
  const bool is_ours = file_.fd.is_open();
  const std::size_t written = is_ours ? write_at(size_, buffer_, file_.fd.number()) : 0;
  const int reason = errno;
  const bool is_whole = written == buffer_.size();
  keep_whole_blocks(written);
  if (is_whole) return;
  if (!is_ours) {
    CUVMM_LOG(Warning, "trace '%s' ends here: the program closed its descriptor", path().c_str());
  } else {
    CUVMM_LOG(Warning, "trace '%s' ends here, the program continues: %s", path().c_str(),
              Error{.kind = ErrorKind::SystemFailed, .system_code = reason, .doing = "write"}
                  .text()
                  .c_str());
    truncate_to_whole_blocks();
  }
  stop_ = Stop::WriteFailed;
}

// `written` bytes of the buffer are in the file; blocks that are not whole there are lost.
void TraceSink::keep_whole_blocks(std::size_t written) {
  std::size_t whole = 0;
  for (const Waiting& block : waiting_) {
    if (block.end <= written) whole = block.end;
    (block.end <= written ? records_ : lost_) += block.records;
  }
  size_ += whole;
  waiting_.clear();
  buffer_.clear();
}

void TraceSink::stop(Stop why) {
  stop_ = why;
  CUVMM_LOG(Warning, "trace '%s' has reached its maximum size: later events are only counted",
            path().c_str());
}

void TraceSink::finish(std::uint64_t dropped, std::uint64_t time, std::uint32_t threads) {
  flush();
  const End end{.records = records_,
                .dropped = dropped + lost_,
                .time = time,
                .blocks = blocks_,
                .threads = threads,
                .stop = stop_,
                .reserved = {}};
  stop_ = Stop::WriteFailed;  // nothing follows the End block
  if (!file_.fd.is_open()) return leave_to_others();
  append({.type = BlockType::End,
          .thread = many_threads,
          .first_time = time,
          .last_time = time,
          .dropped = end.dropped},
         bytes_of(end));
  const std::size_t written = write_at(size_, buffer_, file_.fd.number());
  const bool is_whole = written == buffer_.size();
  keep_whole_blocks(written);
  if (!is_whole) truncate_to_whole_blocks();
  file_.fd.close();
}

// Truncates the file to whole blocks, so that later blocks can be read.
void TraceSink::truncate_to_whole_blocks() {
  [[maybe_unused]] const int refused = ::ftruncate(file_.fd.number(), static_cast<off_t>(size_));
}

void TraceSink::leave_to_others() {
  file_.fd.close();
}

}  // namespace cuvmm
