// SPDX-License-Identifier: Apache-2.0
#include "replay/text_lines.hpp"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/kept_text.hpp"
#include "base/printable.hpp"

namespace cuvmm::replay {
namespace {

constexpr const char* reading = "read trace";
constexpr std::size_t read_at_once = 256 * 1024;
constexpr std::size_t longest_line = 4096;

gzFile zlib_file(void* file) {
  return static_cast<gzFile>(file);
}

struct CloseGzip {
  void operator()(gzFile file) const { ::gzclose_r(file); }
};
using GzipFile = std::unique_ptr<std::remove_pointer_t<gzFile>, CloseGzip>;

}  // namespace

Error unreadable(const std::string& why) {
  return Error::invalid(reading, kept_error_text(printable(why)));
}

Result<std::string> read_whole(const std::string& path, Size most_bytes) {
  errno = 0;
  const GzipFile file{::gzopen(path.c_str(), "rbe")};
  const auto system_failed = [](const char* doing) {
    return Error{.kind = ErrorKind::SystemFailed,
                 .system_code = errno != 0 ? errno : ENOMEM,
                 .doing = doing};
  };
  if (file == nullptr) return system_failed("open trace");
  std::string bytes;
  for (;;) {
    const std::size_t had = bytes.size();
    if (had > most_bytes) {
      return Error{.kind = ErrorKind::OutOfMemory,
                   .doing = reading,
                   .subject = "the file is too large",
                   .available = most_bytes};
    }
    bytes.resize(had + read_at_once);
    errno = 0;
    const int count = ::gzread(file.get(), bytes.data() + had, read_at_once);
    int code = Z_OK;
    ::gzerror(file.get(), &code);
    if (count < 0 && code == Z_ERRNO) return system_failed(reading);
    if (count < 0) return unreadable("the compressed data is damaged");
    if (count == 0 && code == Z_BUF_ERROR) return unreadable("the compressed data ends too early");
    bytes.resize(had + static_cast<std::size_t>(count));
    if (count == 0) return bytes;
  }
}

void TextLines::Close::operator()(void* file) const {
  ::gzclose_r(zlib_file(file));
}

TextLines::TextLines(void* file) : file_(file), buffer_(read_at_once) {}

Result<TextLines> TextLines::open(const std::string& path) {
  errno = 0;
  gzFile file = ::gzopen(path.c_str(), "rbe");
  if (file == nullptr) {
    return Error{.kind = ErrorKind::SystemFailed,
                 .system_code = errno != 0 ? errno : ENOMEM,
                 .doing = "open trace"};
  }
  return TextLines{file};
}

Error TextLines::error_at(std::uint64_t line, const std::string& why) {
  return Error::invalid(reading,
                        kept_error_text("line " + std::to_string(line) + ": " + printable(why)));
}

Result<void> TextLines::read_more() {
  std::copy(buffer_.begin() + std::ptrdiff_t(begin_), buffer_.begin() + std::ptrdiff_t(end_),
            buffer_.begin());
  end_ -= begin_;
  begin_ = 0;
  errno = 0;
  const int count = ::gzread(zlib_file(file_.get()), buffer_.data() + end_,
                             static_cast<unsigned>(buffer_.size() - end_));
  int code = Z_OK;
  ::gzerror(zlib_file(file_.get()), &code);
  if (count < 0 && code == Z_ERRNO) {
    return Error{.kind = ErrorKind::SystemFailed, .system_code = errno, .doing = reading};
  }
  const std::uint64_t line = number_ + 1;  // the line being read
  if (count < 0) return error_at(line, "the compressed data is damaged");
  if (count == 0 && code == Z_BUF_ERROR)
    return error_at(line, "the compressed data ends too early");
  end_ += static_cast<std::size_t>(count);
  at_end_ = count == 0;
  return {};
}

Result<bool> TextLines::next(std::string_view& line) {
  for (;;) {
    const std::string_view rest{buffer_.data() + begin_, end_ - begin_};
    const std::size_t length = std::min(rest.find('\n'), rest.size());
    const bool is_whole = length < rest.size() || (at_end_ && length > 0);
    if (length > longest_line) return error_at(number_ + 1, "no line of a trace is that long");
    if (is_whole) {
      ++number_;
      begin_ += std::min(length + 1, rest.size());
      line = rest.substr(0, length);
      if (line.ends_with('\r')) line.remove_suffix(1);
      return true;
    }
    if (at_end_) return false;
    TRY(read_more());
  }
}

}  // namespace cuvmm::replay
