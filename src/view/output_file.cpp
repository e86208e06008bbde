// SPDX-License-Identifier: Apache-2.0
#include "view/output_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

namespace cuvmm::view {
namespace {

constexpr std::size_t usual_write = 256 * 1024;
constexpr mode_t for_all = 0666;  // minus the umask

Error failed(int code) {
  return {.kind = ErrorKind::SystemFailed, .system_code = code, .doing = "write file"};
}

bool is_no_plain_file(const std::string& path) {
  struct stat facts;
  return ::stat(path.c_str(), &facts) == 0 && !S_ISREG(facts.st_mode);
}

}  // namespace

OutputFile::OutputFile(Fd file, std::string path, std::string draft)
    : file_(std::move(file)), path_(std::move(path)), draft_(std::move(draft)) {}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : file_(std::move(other.file_)),
      path_(std::move(other.path_)),
      draft_(std::exchange(other.draft_, {})),
      buffer_(std::move(other.buffer_)),
      error_(other.error_) {}

OutputFile::~OutputFile() {
  if (!draft_.empty()) ::unlink(draft_.c_str());
}

Result<OutputFile> OutputFile::create(const std::string& path) {
  if (path == "-") {
    Fd out{::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0)};
    if (!out.is_open()) return failed(errno);
    return OutputFile{std::move(out), path, {}};
  }
  std::string draft;
  int flags = O_WRONLY | O_CLOEXEC | O_NOCTTY;
  if (!is_no_plain_file(path)) {
    draft = path + ".part" + std::to_string(::getpid());
    flags |= O_CREAT | O_TRUNC | O_NOFOLLOW;
  }
  Fd file{::open(draft.empty() ? path.c_str() : draft.c_str(), flags, for_all)};
  if (!file.is_open()) return failed(errno);
  return OutputFile{std::move(file), path, std::move(draft)};
}

void OutputFile::write(std::string_view bytes) {
  buffer_ += bytes;
  if (buffer_.size() >= usual_write) flush();
}

void OutputFile::flush() {
  std::string_view left = buffer_;
  while (error_ == 0 && !left.empty()) {
    const ssize_t written = ::write(file_.number(), left.data(), left.size());
    if (written >= 0) {
      left.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      error_ = errno;
    }
  }
  buffer_.clear();
}

Result<void> OutputFile::finish() {
  flush();
  if (error_ != 0) return failed(error_);
  if (draft_.empty()) return {};
  if (::rename(draft_.c_str(), path_.c_str()) != 0) return failed(errno);
  draft_.clear();
  return {};
}

}  // namespace cuvmm::view
