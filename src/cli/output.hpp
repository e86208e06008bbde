// SPDX-License-Identifier: Apache-2.0
// How the command line speaks: colours and progress where a person looks, nothing of both where a
// file or a program does.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace cuvmm::cli {

// What programs that run cuvmm see of it.
inline constexpr int exit_failed = 1;
inline constexpr int exit_usage = 2;

// One line on standard error: "cuvmm: what".
void say(const std::string& what);

// A terminal on that stream that can be drawn on.
bool is_capable_terminal(int stream);

// What a terminal of this environment can show.
enum class Letters { Ascii, Unicode };
Letters letters_here();

// The text without what a terminal would obey, and without what is no UTF-8: a question mark each.
std::string printable(std::string_view text);

// Colours on that stream: a terminal that is not dumb, and no NO_COLOR in the environment.
bool has_colours(int stream);
enum class Tone { Good, Doubtful, Bad, Faint, Strong };
std::string in_tone(std::string_view text, Tone tone, int stream);

// A bar on standard error that is drawn over itself and gone when it ends; nothing where that is no
// terminal. Drawn at most ten times a second.
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

// Columns of the terminal on that stream; 80 where it is none.
int terminal_width(int stream);

}  // namespace cuvmm::cli
