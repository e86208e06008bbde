// SPDX-License-Identifier: Apache-2.0
#include "view/recording.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>

#include "view/log_lines.hpp"

namespace cuvmm::view {
namespace {

constexpr std::size_t longest_line = 4096;            // cuvmm's have at most 1,024 bytes
constexpr std::size_t most_log_records = 20'000'000;  // 1.3 GB

// A log has no header; each line begins with the name of its writer.
bool begins_like_a_log(const std::string& path) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none)) return false;
  std::ifstream file{path, std::ios::binary};
  char start[6] = {};
  file.read(start, sizeof start);
  return file.gcount() == sizeof start && std::string_view{start, sizeof start} == "cuvmm[";
}

}  // namespace

Result<Recording> Recording::open(const std::string& path) {
  auto trace = TraceReader::open(path);
  if (trace.ok()) return Recording{std::move(*trace)};
  if (!begins_like_a_log(path)) return trace.error();

  Recording recording;
  const LogLines lines;
  std::ifstream file{path, std::ios::binary};
  char line[longest_line];
  std::map<std::uint64_t, std::vector<TraceRecord>> by_process;
  std::size_t records = 0;
  while (file.getline(line, sizeof line) || file.gcount() > 0) {
    const bool is_whole = !file.fail();
    if (!is_whole) {
      file.clear();
      file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
    }
    const auto read = is_whole ? lines.read(line) : std::nullopt;
    if (!read || records == most_log_records) {
      ++recording.log_lines_left_out_;
      continue;
    }
    if (!read->event) continue;
    by_process[read->process].push_back(*read->event);
    ++records;
  }
  if (by_process.empty()) {
    return Error::invalid("read log", "it contains no events; VMM_LOG_LEVEL=INFO logs them");
  }
  // A launcher has few events, and its workers have many.
  const auto busiest = std::max_element(
      by_process.begin(), by_process.end(),
      [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  recording.log_ = std::move(busiest->second);
  recording.log_processes_left_out_ = by_process.size() - 1;
  // A thread may have been overtaken between reading the clock and writing.
  std::stable_sort(recording.log_.begin(), recording.log_.end(),
                   [](const auto& a, const auto& b) { return a.time < b.time; });
  const std::uint64_t start = recording.log_.front().time;
  for (TraceRecord& record : recording.log_) record.time -= start;
  recording.log_header_.process = busiest->first;
  return recording;
}

Recording Recording::of(TraceHeader header, std::vector<TraceRecord> records) {
  Recording recording;
  recording.log_header_ = std::move(header);
  recording.log_ = std::move(records);
  return recording;
}

std::uint64_t Recording::last_time() const {
  if (trace_) return trace_->last_time();
  return log_.empty() ? 0 : log_.back().time;
}

void Recording::rewind() {
  if (trace_) trace_->rewind();
  at_ = 0;
  read_ = 0;
}

void Recording::report() const {
  const auto all = static_cast<double>(std::max<std::uint64_t>(record_count(), 1));
  progress_(std::min(1.0, static_cast<double>(read_) / all));
}

std::string Recording::note() const {
  if (trace_) return trace_->note();
  std::string note;
  if (log_processes_left_out_ > 0) {
    note = "shows process " + std::to_string(log_header_.process) +
           "; the log also has events of " + std::to_string(log_processes_left_out_) +
           " other process" + (log_processes_left_out_ == 1 ? "" : "es") +
           ", which %p in VMM_LOG_FILE would keep apart";
  }
  if (log_lines_left_out_ > 0) {
    note += note.empty() ? "" : "; ";
    note += std::to_string(log_lines_left_out_) + " lines are not log lines and were left out";
  }
  return note;
}

}  // namespace cuvmm::view
