// SPDX-License-Identifier: Apache-2.0
#include "cli/output.hpp"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/clock.hpp"
#include "base/text.hpp"

namespace cuvmm::cli {
namespace {

constexpr std::uint64_t between_bars_us = 100'000;
constexpr int bar_width = 30;

const char* code_of(Tone tone) {
  switch (tone) {
    case Tone::Good:
      return "32";
    case Tone::Doubtful:
      return "33";
    case Tone::Bad:
      return "31";
    case Tone::Faint:
      return "2";
    case Tone::Strong:
      return "1";
  }
  return "0";
}

}  // namespace

void say(const std::string& what) {
  say_more("cuvmm: " + what);
}

void say_more(const std::string& line) {
  const std::string whole = line + '\n';
  std::fputs(whole.c_str(), stderr);
}

bool lacks_folder(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path{path}.parent_path();
  std::error_code none;
  if (folder.empty() || std::filesystem::exists(folder, none)) return false;
  say(fmt::format("{}: there is no folder {}", path, folder.string()));
  return true;
}

bool is_capable_terminal(int stream) {
  if (isatty(stream) == 0) return false;
  const char* kind = std::getenv("TERM");
  return kind != nullptr && *kind != '\0' && std::string_view{kind} != "dumb";
}

// The variables in the order of setlocale(3).
Letters letters_here() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* const value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    std::string text;
    for (const char* letter = value; *letter != '\0'; ++letter) text += lower(*letter);
    const bool is_utf8 =
        text.find("utf-8") != std::string::npos || text.find("utf8") != std::string::npos;
    return is_utf8 ? Letters::Unicode : Letters::Ascii;
  }
  return Letters::Ascii;
}

std::string first_letters(const std::string& text, std::size_t count) {
  std::size_t end = 0;
  for (std::size_t seen = 0; end < text.size(); ++end) {
    const bool begins = (static_cast<unsigned char>(text[end]) & 0xc0) != 0x80;
    if (begins && seen++ == count) break;
  }
  return text.substr(0, end);
}

bool has_colours(int stream) {
  const char* unwanted = std::getenv("NO_COLOR");
  return (unwanted == nullptr || *unwanted == '\0') && is_capable_terminal(stream);
}

std::string in_tone(std::string_view text, Tone tone, int stream) {
  if (!has_colours(stream)) return std::string{text};
  return fmt::format("\033[{}m{}\033[0m", code_of(tone), text);
}

int terminal_width(int stream) {
  winsize size{};
  if (ioctl(stream, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

ProgressBar::ProgressBar(std::string what)
    : what_(std::move(what)), is_shown_(is_capable_terminal(STDERR_FILENO)) {}

ProgressBar::~ProgressBar() {
  if (was_drawn_) std::fputs("\r\033[K", stderr);
}

void ProgressBar::show(double share) {
  if (!is_shown_) return;
  const std::uint64_t now = now_us();
  if (was_drawn_ && now - last_drawn_us_ < between_bars_us) return;
  was_drawn_ = true;
  last_drawn_us_ = now;
  const int done = static_cast<int>(std::clamp(share, 0.0, 1.0) * bar_width);
  const std::string bar =
      fmt::format("\r{} [{}{}] {:3.0f}%\033[K", what_, std::string(static_cast<size_t>(done), '#'),
                  std::string(static_cast<size_t>(bar_width - done), '.'), share * 100);
  std::fputs(bar.c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace cuvmm::cli
