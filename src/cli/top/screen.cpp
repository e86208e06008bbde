// SPDX-License-Identifier: Apache-2.0
#include "cli/top/screen.hpp"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string_view>

#include "cli/output.hpp"

namespace cuvmm::cli {
namespace {

volatile std::sig_atomic_t is_to_end = 0;

void note_end(int) {
  is_to_end = 1;
}
void note_nothing(int) {}

// Without SA_RESTART, so that a signal ends the wait for keys.
void on(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  ::sigaction(signal, &action, nullptr);
}

void put(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

// Keeps only keys that are a letter. An arrow, for example, arrives as an escape, a bracket, and
// characters up to the first that is not part of a number.
std::string without_sequences(std::string_view pressed) {
  std::string letters;
  for (std::size_t i = 0; i < pressed.size(); ++i) {
    if (pressed[i] != '\033') {
      letters += pressed[i];
      continue;
    }
    if (i + 1 < pressed.size() && (pressed[i + 1] == '[' || pressed[i + 1] == 'O')) ++i;
    do {
      ++i;
    } while (i < pressed.size() && pressed[i] < '@');
  }
  return letters;
}

// Switch to the alternate screen without cursor and line wrapping, and back.
constexpr std::string_view begin = "\033[?1049h\033[?25l\033[?7l";
constexpr std::string_view end = "\033[?7h\033[?25h\033[?1049l";

}  // namespace

Screen::Screen() {
  ::tcgetattr(STDIN_FILENO, &before_);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) on(signal, &note_end);
  on(SIGWINCH, &note_nothing);
  termios raw = before_;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  raw.c_cc[VSUSP] = _POSIX_VDISABLE;  // a stop would leave the terminal in this mode
  ::tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
  put(begin);
}

Screen::~Screen() {
  put(end);
  ::tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
}

void Screen::draw(const std::vector<std::string>& lines) const {
  std::string all = "\033[H";
  const std::size_t most = height();
  for (std::size_t i = 0; i < lines.size() && i < most; ++i) {
    all += (i == 0 ? "" : "\r\n") + lines[i] + "\033[K";
  }
  all += "\033[J";
  put(all);
}

std::string Screen::keys(Duration at_most) const {
  if (is_to_end != 0) return "q";
  pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  const int ready = ::poll(&input, 1, static_cast<int>(at_most.count() / 1000));
  if (is_to_end != 0) return "q";
  if (ready <= 0) return {};
  char pressed[64];
  const ssize_t got = ::read(STDIN_FILENO, pressed, sizeof pressed);
  if (got < 0 && errno == EINTR) return {};
  if (got <= 0) return "q";
  return without_sequences({pressed, static_cast<std::size_t>(got)});
}

std::size_t Screen::width() {
  return static_cast<std::size_t>(terminal_width(STDOUT_FILENO));
}

std::size_t Screen::height() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0) return 24;
  return size.ws_row;
}

}  // namespace cuvmm::cli
