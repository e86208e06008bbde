// SPDX-License-Identifier: Apache-2.0
#include "trace/scan.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace cuvmm {
namespace {

using namespace trace_format;

constexpr Size usual_stretch = 1 * MiB;
constexpr Size most_nonsense = 16 * MiB;  // of bytes without a block: the rest is no trace
constexpr Size most_facts = 4 * MiB;      // over all blocks

// A few KiB of the file around the current position.
class Window {
 public:
  explicit Window(const TraceBytes& file) : file_(file), bytes_(16 * KiB) {}

  Result<std::span<const std::byte>> at(Size place, std::size_t wanted) {
    if (place < begin_ || place + wanted > begin_ + filled_.size()) {
      begin_ = place;
      filled_ = TRY(file_.read(place, bytes_));
    }
    const auto from = filled_.subspan(std::min<Size>(place - begin_, filled_.size()));
    return from.first(std::min(wanted, from.size()));
  }

 private:
  const TraceBytes& file_;
  std::vector<std::byte> bytes_;
  std::span<const std::byte> filled_;
  Size begin_ = 0;
};

class Scanner {
 public:
  Scanner(const TraceBytes& file, Size from, TraceHeader& header)
      : file_(file), window_(file), at_(from), header_(header) {}

  Result<TraceScan> run() {
    while (at_ < file_.size()) {
      const auto block = block_at(TRY(window_.at(at_, sizeof(BlockHeader))));
      if (!block) {
        if (!TRY(find_next_block())) break;
      } else if (sizeof *block + block->payload_size > file_.size() - at_) {
        take_cut(*block);
        break;
      } else {
        TRY(take(*block));
      }
    }
    return std::move(scan_);
  }

 private:
  // Skips bytes that are not a block. False if nothing else is left.
  Result<bool> find_next_block() {
    const Size begin = at_;
    scan_.health.is_finished = false;
    is_continued_ = false;
    for (Size step = unit; step <= most_nonsense && begin + step < file_.size(); step += unit) {
      if (block_at(TRY(window_.at(begin + step, sizeof(BlockHeader))))) {
        at_ = begin + step;
        ++scan_.health.damaged;
        return true;
      }
    }
    scan_.health.cut_bytes = file_.size() - begin;
    return false;
  }

  Result<void> take(const BlockHeader& block) {
    scan_.health.is_finished = false;  // unless End is the last block
    scan_.health.dropped = std::max(scan_.health.dropped, block.dropped);
    const Size size = sizeof block + block.payload_size;
    if (block.type == BlockType::Records) {
      add_to_stretch(block, size);
      scan_.records += block.records;
      scan_.last_time = std::max(scan_.last_time, block.last_time);
    } else {
      is_continued_ = false;
      TRY(take_words(block));
    }
    at_ += size;
    return {};
  }

  // Takes the truncated last block, whose whole records are valid.
  void take_cut(const BlockHeader& block) {
    const Size left = file_.size() - at_ - sizeof block;
    const Size records = block.type == BlockType::Records ? left / sizeof(TraceRecord) : 0;
    scan_.health.is_finished = false;
    scan_.health.cut_bytes = left - records * sizeof(TraceRecord);
    if (records == 0) {
      scan_.health.cut_bytes = file_.size() - at_;
      return;
    }
    add_to_stretch(block, sizeof block + records * sizeof(TraceRecord));
    scan_.records += records;
    scan_.last_time = std::max(scan_.last_time, block.last_time);
  }

  void add_to_stretch(const BlockHeader& block, Size size) {
    if (!is_continued_ || at_ - scan_.stretches.back().begin >= usual_stretch) {
      scan_.stretches.push_back({.begin = at_});
      is_continued_ = true;
    }
    TraceStretch& stretch = scan_.stretches.back();
    stretch.end = at_ + size;
    stretch.first_time = std::min(stretch.first_time, block.first_time);
  }

  Result<void> take_words(const BlockHeader& block) {
    if (block.type != BlockType::Sections && block.type != BlockType::End) return {};
    std::vector<std::byte> bytes(block.payload_size);
    const auto payload = TRY(file_.read(at_ + sizeof block, bytes));
    const bool is_good = payload_is_whole(block, payload) &&
                         (block.type == BlockType::End ? take_end(payload) : take_facts(payload));
    if (!is_good) ++scan_.health.damaged;
    return {};
  }

  bool take_end(std::span<const std::byte> payload) {
    End end;
    std::memcpy(&end, payload.data(), sizeof end);
    scan_.health.is_finished = true;
    scan_.health.reached_size_cap = end.stop == Stop::SizeCap;
    scan_.health.ran_out_of_space = end.stop == Stop::WriteFailed;
    scan_.health.dropped = std::max(scan_.health.dropped, end.dropped);
    scan_.last_time = std::max(scan_.last_time, end.time);
    return true;
  }

  // Facts beyond the limit are whole but left out: a program that makes many pools names many
  // arenas.
  bool take_facts(std::span<const std::byte> payload) {
    facts_ += payload.size();
    return facts_ > most_facts || add_sections(payload, header_);
  }

  const TraceBytes& file_;
  Window window_;
  Size at_;
  TraceHeader& header_;
  TraceScan scan_;
  bool is_continued_ = false;  // the next block belongs to the last stretch
  Size facts_ = 0;
};

Error not_readable(int code) {
  return {.kind = ErrorKind::SystemFailed, .system_code = code, .doing = "read trace"};
}

}  // namespace

Result<TraceBytes> TraceBytes::of(Fd file) {
  struct stat facts;
  if (::fstat(file.number(), &facts) != 0) return not_readable(errno);
  if (!S_ISREG(facts.st_mode)) return Error::invalid("read trace", "not a plain file");
  return TraceBytes{std::move(file), static_cast<Size>(facts.st_size)};
}

Result<std::span<const std::byte>> TraceBytes::read(Size place, std::span<std::byte> bytes) const {
  std::size_t done = 0;
  while (done < bytes.size() && place + done < size_) {
    const std::size_t wanted = std::min<Size>(bytes.size() - done, size_ - place - done);
    const ssize_t got =
        ::pread(file_.number(), bytes.data() + done, wanted, static_cast<off_t>(place + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return not_readable(errno);
    if (got == 0) break;  // truncated meanwhile
    done += static_cast<std::size_t>(got);
  }
  return std::span<const std::byte>{bytes.first(done)};
}

Result<TraceScan> scan_trace(const TraceBytes& file, Size from, TraceHeader& header) {
  return Scanner{file, from, header}.run();
}

}  // namespace cuvmm
