// SPDX-License-Identifier: Apache-2.0
#include "trace/trace_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <optional>

#include "base/file.hpp"
#include "base/kept_text.hpp"

namespace cuvmm {
namespace {

constexpr int most_names = 100;

// O_NONBLOCK: opening a device or pipe must not hang the program.
constexpr int how = O_WRONLY | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;

constexpr const char* creating = "create trace file";

Error system_refused(const std::string& path) {
  const int code = errno;
  return {.kind = ErrorKind::SystemFailed,
          .system_code = code,
          .doing = creating,
          .subject = kept_error_text(path)};
}

// FILE, FILE.PID, FILE.PID.1, ...: the last form is for a process that traces more than once.
std::string name_number(int number, const std::string& path) {
  if (number == 0) return path;
  const std::string with_process = path + "." + std::to_string(::getpid());
  return number == 1 ? with_process : with_process + "." + std::to_string(number - 1);
}

Result<TraceFile> taken_over(Fd fd, const std::string& path) {
  struct stat facts;
  if (::fstat(fd.number(), &facts) != 0) return system_refused(path);
  TraceFile file;
  file.fd = OwnFd{std::move(fd)};
  file.path = path;
  file.is_device = S_ISCHR(facts.st_mode);
  return file;
}

// Nothing if a plain file of that name exists.
Result<std::optional<TraceFile>> try_name(const std::string& path) {
  Fd created{::open(path.c_str(), how | O_CREAT | O_EXCL, S_IRUSR | S_IWUSR)};
  if (created.is_open()) return std::optional{TRY(taken_over(std::move(created), path))};
  if (errno != EEXIST) return system_refused(path);

  struct stat facts;
  if (::lstat(path.c_str(), &facts) != 0) return system_refused(path);
  if (S_ISREG(facts.st_mode)) return std::optional<TraceFile>{};
  if (S_ISCHR(facts.st_mode)) {
    Fd device{::open(path.c_str(), how)};
    if (!device.is_open()) return system_refused(path);
    return std::optional{TRY(taken_over(std::move(device), path))};
  }
  return Error::invalid(
      creating, kept_error_text(path + ": a file of that name exists and is not a regular file"));
}

}  // namespace

Result<TraceFile> create_trace_file(std::string_view pattern) {
  const std::string path = expand_file_name(pattern);
  for (int number = 0; number < most_names; ++number) {
    auto file = TRY(try_name(name_number(number, path)));
    if (!file) continue;
    file->name_was_taken = number > 0;
    return std::move(*file);
  }
  return Error::invalid(creating, kept_error_text(path + ": too many files of its name exist"));
}

}  // namespace cuvmm
