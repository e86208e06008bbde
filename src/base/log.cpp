// SPDX-License-Identifier: Apache-2.0
#include "base/log.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "base/clock.hpp"
#include "base/file.hpp"
#include "base/own_fd.hpp"
#include "base/without_signals.hpp"

namespace cuvmm {
namespace detail {

constinit std::atomic<Severity> least_severe_logged{Severity::Warning};

}  // namespace detail

namespace {

constexpr std::size_t longest_line = 1024;  // below PIPE_BUF: one write to a pipe stays whole

// Where lines go. The file's identity is kept with its number: a program that closes all
// descriptors (as daemon() does) may reuse the number for a file that must not receive log lines.
struct LogFile {
  std::atomic<int> number{-1};
  FileIdentity file;

  bool is_still_ours() const {
    return FileIdentity::of(number.load(std::memory_order_relaxed)) == file;
  }
};

// The same for standard error: if it is closed, the program's next file gets its number.
struct StandardError {
  std::atomic<bool> is_known{false};
  std::optional<FileIdentity> first;

  void look() {
    first = FileIdentity::of(STDERR_FILENO);
    is_known.store(true, std::memory_order_release);
  }
  // True if it is the original file, the same file as standard output, or a terminal.
  bool takes_lines() const {
    const auto now = FileIdentity::of(STDERR_FILENO);
    if (!now) return false;
    if (!is_known.load(std::memory_order_acquire) || now == first) return true;
    return now == FileIdentity::of(STDOUT_FILENO) || ::isatty(STDERR_FILENO) != 0;
  }
};

constinit StandardError standard_error;
[[gnu::constructor]] void look_at_it_at_the_start() {
  standard_error.look();
}

constinit LogFile log_file;
constinit std::atomic<const char*> speaker{"cuvmm"};

const char* name_of(Severity severity) {
  switch (severity) {
    case Severity::Error:
      return "ERROR";
    case Severity::Warning:
      return "WARNING";
    case Severity::Info:
      return "INFO";
    case Severity::Debug:
      return "DEBUG";
  }
  return "?";
}

Severity least_severe_at(LogLevel level) {
  switch (level) {
    case LogLevel::Error:
      return Severity::Error;
    case LogLevel::Warning:
      return Severity::Warning;
    case LogLevel::Info:
      return Severity::Info;
    case LogLevel::Debug:
      return Severity::Debug;
  }
  return Severity::Warning;
}

bool write_whole(int file, const char* line, std::size_t size) {
  const WithoutWriteSignals quiet;
  ssize_t written;
  do {
    written = ::write(file, line, size);
  } while (written < 0 && errno == EINTR);
  return written == static_cast<ssize_t>(size);
}

// One line, ready to write: "cuvmm[4711] INFO 81234567 text\n".
class Line {
 public:
  [[gnu::format(printf, 3, 0)]] Line(Severity severity, const char* format, va_list arguments) {
    add(std::snprintf(text_, room(), "%s[%d] %s %llu ", speaker.load(std::memory_order_relaxed),
                      static_cast<int>(::getpid()), name_of(severity),
                      static_cast<unsigned long long>(now_us())));
    const std::size_t start = size_;
    add(std::vsnprintf(text_ + size_, room(), format, arguments));
    std::replace_if(
        text_ + start, text_ + size_, [](char c) { return c == '\n' || c == '\r'; }, ' ');
    if (is_cut_) std::memcpy(text_ + size_ - 3, "...", 3);
    text_[size_++] = '\n';
  }
  const char* text() const { return text_; }
  std::size_t size() const { return size_; }

 private:
  std::size_t room() const { return longest_line - size_; }  // includes one byte for the line end

  void add(int wanted) {
    if (wanted < 0) return;
    is_cut_ = static_cast<std::size_t>(wanted) >= room();
    size_ += is_cut_ ? room() - 1 : static_cast<std::size_t>(wanted);
  }

  char text_[longest_line];
  std::size_t size_ = 0;
  bool is_cut_ = false;
};

void write_to_standard_error(const Line& line) {
  if (!standard_error.takes_lines()) return;
  write_whole(STDERR_FILENO, line.text(), line.size());
}

// Gives up the file with one warning. From then on, only warnings and errors are logged, to
// standard error.
void give_file_up(const char* why) {
  // Another thread was first.
  if (log_file.number.exchange(-1, std::memory_order_relaxed) < 0) return;
  auto& least = detail::least_severe_logged;
  if (least.load(std::memory_order_relaxed) > Severity::Warning) least.store(Severity::Warning);
  CUVMM_LOG(Warning, "log file lost, logging warnings to standard error: %s", why);
}

bool write_to_file(const Line& line) {
  const int number = log_file.number.load(std::memory_order_relaxed);
  if (number < 0) return false;
  if (!log_file.is_still_ours()) {
    give_file_up("the program has closed it");
    return false;
  }
  if (write_whole(number, line.text(), line.size())) return true;
  give_file_up("it takes no more");
  return false;
}

Result<void> open_log_file(std::string_view pattern) {
  const std::string path = expand_file_name(pattern);
  auto opened = open_private_file_to_add_to(path);
  if (!opened) {
    CUVMM_LOG(Warning, "cannot use log file '%s', logging to standard error: %s", path.c_str(),
              opened.error().text().c_str());
    return opened.error();
  }
  log_file.file = FileIdentity::of(opened->number()).value_or(FileIdentity{});
  log_file.number.store(move_to_high_number(std::move(*opened)).release(),
                        std::memory_order_release);
  return {};
}

}  // namespace

Result<void> set_up_log(const LogSetup& setup) {
  const bool is_ours_to_close = log_file.is_still_ours();
  const int before = log_file.number.exchange(-1, std::memory_order_relaxed);
  if (is_ours_to_close) ::close(before);
  speaker.store(setup.name, std::memory_order_relaxed);
  detail::least_severe_logged.store(least_severe_at(setup.level), std::memory_order_relaxed);
  if (setup.file.empty()) return {};
  return open_log_file(setup.file);
}

void detail::look_at_standard_error() {
  standard_error.look();
}

void detail::write_log(Severity severity, const char* format, ...) {
  const int kept = errno;
  va_list arguments;
  va_start(arguments, format);
  const Line line{severity, format, arguments};
  va_end(arguments);
  // If the file has just been lost, fewer lines are logged.
  if (!write_to_file(line) && is_logged(severity)) write_to_standard_error(line);
  errno = kept;
}

}  // namespace cuvmm
