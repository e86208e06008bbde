// SPDX-License-Identifier: Apache-2.0
#include "cli/trace_names.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "base/clock.hpp"
#include "base/file.hpp"
#include "base/kept_text.hpp"
#include "trace/header.hpp"
#include "trace/reader.hpp"
#include "trace/run_variable.hpp"

namespace cuvmm::cli {
namespace {

namespace fs = std::filesystem;

bool is_digit_at(const std::string& text, std::size_t place) {
  return place < text.size() && std::isdigit(static_cast<unsigned char>(text[place])) != 0;
}

// NAME.PID, NAME.PID.1, ...
bool is_numbered(const std::string& text, const std::string& name) {
  return text.starts_with(name + ".") && is_digit_at(text, name.size() + 1);
}

// The name, with every %p replaced by `process`. expand_file_name handles everything else.
std::string expanded(const std::string& pattern, const std::string& process) {
  std::string name;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern.compare(i, 2, "%p") == 0) {
      name += process;
      ++i;
    } else if (pattern[i] == '%' && i + 1 < pattern.size()) {
      name += pattern.substr(i++, 2);
    } else {
      name += pattern[i];
    }
  }
  return expand_file_name(name);
}

fs::path folder_of(const std::string& name) {
  const fs::path path{name};
  return path.has_parent_path() ? path.parent_path() : fs::path{"."};
}

// The process that a trace of the run with this mark is of.
std::optional<std::uint64_t> process_of(const std::string& path, const std::string& mark) {
  const auto trace = TraceReader::open(path);
  if (!trace) return {};
  for (const TraceOption& option : trace->header().options) {
    if (option.name == run_variable && option.value == mark) return trace->header().process;
  }
  return {};
}

}  // namespace

TraceNames::TraceNames(const std::string& pattern)
    : pattern_(pattern), mark_(fmt::format("{}.{}", ::getpid(), now_ns())) {
  if (pattern.empty()) return;
  std::error_code none;
  was_taken_ = pattern.find("%p") == std::string::npos &&
               fs::is_regular_file(expand_file_name(pattern), none);
  before_ = candidates();
}

std::string TraceNames::missing_folder() const {
  const std::string folder = folder_of(pattern_).string();
  std::error_code none;
  // The folder of each process' own is not known yet.
  if (pattern_.empty() || folder.find("%p") != std::string::npos) return {};
  const std::string path = expand_file_name(folder);
  return fs::exists(path, none) ? "" : path;
}

Result<void> TraceNames::check_folder() const {
  if (pattern_.empty()) return {};
  const fs::path folder = folder_of(pattern_);
  // The folder of each process' own is not known yet.
  if (folder.string().find("%p") != std::string::npos) return {};
  const std::string path = expand_file_name(folder.string());
  std::error_code none;
  if (fs::is_character_file(expand_file_name(pattern_), none)) return {};
  errno = 0;
  if (::access(path.c_str(), W_OK | X_OK) == 0) return {};
  return Error{.kind = ErrorKind::SystemFailed,
               .system_code = errno,
               .doing = "create a trace",
               .subject = kept_error_text("in " + path)};
}

void TraceNames::mark_environment() const {
  ::setenv(run_variable, mark_.c_str(), 1);
}

// The files that processes may have written to for this pattern.
std::set<std::string> TraceNames::candidates() const {
  std::set<std::string> names;
  const fs::path name{pattern_};
  const std::string folder = expand_file_name(name.parent_path().string());
  const std::string file = name.filename().string();
  const std::string beginning = expand_file_name(file.substr(0, file.find("%p")));
  std::error_code none;
  for (const auto& entry : fs::directory_iterator{folder.empty() ? "." : folder, none}) {
    const std::string there = entry.path().filename().string();
    if (!there.starts_with(beginning)) continue;
    std::size_t end = beginning.size();
    while (is_digit_at(there, end)) ++end;
    const std::string own = expanded(file, there.substr(beginning.size(), end - beginning.size()));
    if (there == own || is_numbered(there, own)) names.insert((fs::path{folder} / there).string());
  }
  return names;
}

std::string TraceNames::renamed_note() const {
  if (!was_taken_) return {};
  std::string text;
  for (const std::string& one : written(0)) {
    text += text.empty() ? expand_file_name(pattern_) + " already exists; the trace is in " : ", ";
    text += one;
  }
  return text;
}

std::vector<std::string> TraceNames::written(pid_t process) const {
  std::vector<std::string> names;
  std::error_code none;
  for (const std::string& one : candidates()) {
    if (before_.contains(one) || !fs::is_regular_file(one, none)) continue;
    const auto whose = process_of(one, mark_);
    if (!whose) continue;
    const bool is_first = *whose == static_cast<std::uint64_t>(process);
    names.insert(is_first ? names.begin() : names.end(), one);
  }
  return names;
}

}  // namespace cuvmm::cli
