// SPDX-License-Identifier: Apache-2.0
#include "replay/read_trace.hpp"

#include <fcntl.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/fd.hpp"
#include "trace/format.hpp"

namespace cuvmm::replay {
namespace {

Result<bool> begins_as_ours(const std::string& path) {
  const Fd file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  std::array<char, sizeof trace_format::magic> start{};
  if (!file.is_open() || ::read(file.number(), start.data(), start.size()) < 0) {
    return Error{.kind = ErrorKind::SystemFailed, .system_code = errno, .doing = "open trace"};
  }
  return std::memcmp(start.data(), trace_format::magic, start.size()) == 0;
}

}  // namespace

Result<ReplayTrace> read_trace(const std::string& path) {
  if (TRY(begins_as_ours(path))) return read_cuvmm_trace(path);
  TextLines lines = TRY(TextLines::open(path));
  std::string_view line;
  if (!TRY(lines.next(line))) return Error::invalid("read trace", "the file is empty");
  const std::string head{line};
  if (is_pytorch_history(head)) return read_pytorch_history(lines, head);
  if (is_rmm_log(head)) return read_rmm_log(lines, head);
  return lines.error(
      "neither a trace of cuvmm nor the head of a table with the columns time_us, action, "
      "address, size, stream or Thread, Time, Action, Pointer, Size, Stream");
}

}  // namespace cuvmm::replay
