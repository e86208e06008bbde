// SPDX-License-Identifier: Apache-2.0
// The command line's output: with colours and progress on a terminal, without either in a file or a
// pipe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/printable.hpp"

namespace cuvmm::cli {

// Exit statuses.
inline constexpr int exit_failed = 1;
inline constexpr int exit_usage = 2;

// One line on standard error: "cuvmm: what". A failure to write it is ignored: a program that we
// run must start, and end with its own status, even if the disk is full.
void say(const std::string& what);
// A further line, without the prefix.
void say_more(const std::string& line);

// Whether the folder of a file that is to be written is missing. Says so on standard error.
bool lacks_folder(const std::string& path);

// Whether the stream is a terminal that can move its cursor.
bool is_capable_terminal(int stream);

// The characters that a terminal with this environment can show.
enum class Letters { Ascii, Unicode };
Letters letters_here();

// The first `count` characters of UTF-8 text.
std::string first_letters(const std::string& text, std::size_t count);

// Whether to use colours on the stream: a terminal that is not dumb, and no NO_COLOR in the
// environment.
bool has_colours(int stream);
enum class Tone { Good, Doubtful, Bad, Faint, Strong };
std::string in_tone(std::string_view text, Tone tone, int stream);

// A progress bar on standard error, redrawn at most ten times a second and erased at the end. Draws
// nothing if standard error is not a terminal.
class ProgressBar {
 public:
  explicit ProgressBar(std::string what);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void show(double share);  // from 0 to 1

 private:
  std::string what_;
  bool is_shown_;
  bool was_drawn_ = false;
  std::uint64_t last_drawn_us_ = 0;
};

// Columns of the terminal on the stream; 80 if it is not a terminal.
int terminal_width(int stream);

}  // namespace cuvmm::cli
