// SPDX-License-Identifier: Apache-2.0
#include "replay/read_trace.hpp"

#include "replay/file_kind.hpp"

namespace cuvmm::replay {

namespace {

Error other_kind(FileKind kind) {
  return unreadable(
      std::string{"it is "} + name_of(kind) +
      "; cuvmm reads its own traces, PyTorch's memory snapshots, and tables with the columns "
      "time_us, action, address, size, stream or Thread, Time, Action, Pointer, Size, Stream");
}

}  // namespace

Result<ReplayTrace> read_trace(const std::string& path) {
  const FileKind kind = TRY(kind_of_file(path));
  if (kind == FileKind::CuvmmTrace) return read_cuvmm_trace(path);
  if (kind == FileKind::Pickle) return read_pytorch_snapshot_file(path);
  if (kind == FileKind::Empty) return Error::invalid("read trace", "the file is empty");
  if (kind == FileKind::CuvmmLog) {
    return Error::invalid("read trace",
                          "a log of cuvmm: `cuvmm stats` and `cuvmm plot` read it; allocations are "
                          "replayed from a trace (cuvmm run --trace FILE)");
  }
  // Other files may have lines that are too long to read.
  if (kind != FileKind::PytorchTable && kind != FileKind::RmmLog) return other_kind(kind);
  TextLines lines = TRY(TextLines::open(path));
  std::string_view line;
  if (!TRY(lines.next(line))) return Error::invalid("read trace", "the file is empty");
  const std::string head{line};
  if (is_pytorch_history(head)) return read_pytorch_history(lines, head);
  if (is_rmm_log(head)) return read_rmm_log(lines, head);
  return other_kind(kind);
}

}  // namespace cuvmm::replay
