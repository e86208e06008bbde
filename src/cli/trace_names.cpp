// SPDX-License-Identifier: Apache-2.0
#include "cli/trace_names.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "base/file.hpp"

namespace cuvmm::cli {
namespace {

namespace fs = std::filesystem;

bool begins_with_digit_after(const std::string& text, const std::string& beginning) {
  return text.size() > beginning.size() && text.starts_with(beginning) &&
         std::isdigit(static_cast<unsigned char>(text[beginning.size()])) != 0;
}

}  // namespace

TraceNames::TraceNames(const std::string& pattern) {
  if (pattern.empty() || pattern.find("%p") != std::string::npos) return;
  name_ = expand_file_name(pattern);
  std::error_code none;
  was_taken_ = fs::is_regular_file(name_, none);
  before_ = beside();
}

std::set<std::string> TraceNames::beside() const {
  std::set<std::string> names;
  if (!was_taken_) return names;
  const fs::path name{name_};
  const std::string beginning = name.filename().string() + ".";
  std::error_code none;
  const fs::path folder = name.has_parent_path() ? name.parent_path() : fs::path{"."};
  for (const auto& entry : fs::directory_iterator{folder, none}) {
    const std::string there = entry.path().filename().string();
    if (begins_with_digit_after(there, beginning)) {
      names.insert((name.parent_path() / there).string());
    }
  }
  return names;
}

std::string TraceNames::what_was_written_instead() const {
  if (!was_taken_) return {};
  std::string text;
  for (const std::string& one : beside()) {
    if (before_.contains(one)) continue;
    text += text.empty() ? name_ + " was there already and is kept; the trace is " : ", ";
    text += one;
  }
  return text;
}

}  // namespace cuvmm::cli
