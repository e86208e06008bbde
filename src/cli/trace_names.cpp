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

// Replaces %p by that process; expand_file_name handles everything else.
std::string with_process(const std::string& pattern, pid_t process) {
  std::string name;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern.compare(i, 2, "%p") == 0) {
      name += std::to_string(process);
      ++i;
    } else if (pattern[i] == '%' && i + 1 < pattern.size()) {
      name += pattern.substr(i++, 2);
    } else {
      name += pattern[i];
    }
  }
  return name;
}

}  // namespace

TraceNames::TraceNames(const std::string& pattern) : pattern_(pattern) {
  if (pattern.empty() || pattern.find("%p") != std::string::npos) return;
  name_ = expand_file_name(pattern);
  std::error_code none;
  was_taken_ = fs::is_regular_file(name_, none);
  before_ = beside();
}

std::set<std::string> TraceNames::beside() const {
  std::set<std::string> names;
  if (name_.empty()) return names;
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

std::string TraceNames::renamed_note() const {
  if (!was_taken_) return {};
  std::string text;
  for (const std::string& one : beside()) {
    if (before_.contains(one)) continue;
    text += text.empty() ? name_ + " was there already and is kept; the trace is " : ", ";
    text += one;
  }
  return text;
}

std::vector<std::string> TraceNames::written(pid_t process) const {
  std::vector<std::string> names;
  std::error_code none;
  if (name_.empty() && !pattern_.empty()) {
    names.push_back(expand_file_name(with_process(pattern_, process)));
  } else if (!was_taken_) {
    names.push_back(name_);
  }
  for (const std::string& one : beside()) {
    if (!before_.contains(one)) names.push_back(one);
  }
  std::erase_if(names, [&](const std::string& name) { return !fs::is_regular_file(name, none); });
  return names;
}

}  // namespace cuvmm::cli
