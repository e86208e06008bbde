// SPDX-License-Identifier: Apache-2.0
#include "replay/file_kind.hpp"

#include <sys/stat.h>
#include <zlib.h>

#include <array>
#include <cerrno>
#include <memory>
#include <string_view>

#include "replay/read_trace.hpp"
#include "trace/format.hpp"

namespace cuvmm::replay {
namespace {

struct CloseStart {
  void operator()(gzFile file) const { ::gzclose_r(file); }
};

Error cannot_open(int code) {
  return {.kind = ErrorKind::SystemFailed, .system_code = code, .doing = "open trace"};
}

FileKind kind_of_text(std::string_view start) {
  std::string_view head = start.substr(0, start.find('\n'));
  if (head.ends_with('\r')) head.remove_suffix(1);
  if (is_pytorch_history(head)) return FileKind::PytorchTable;
  if (is_rmm_log(head)) return FileKind::RmmLog;
  if (start.starts_with('{') || start.starts_with('[')) return FileKind::Json;
  const bool is_text =
      head.size() < start.size() && head.find_first_of(std::string_view{"\0\x80", 2}) == head.npos;
  return is_text && head.find(',') != head.npos ? FileKind::OtherTable : FileKind::Unknown;
}

FileKind kind_of_start(std::string_view start) {
  if (start.empty()) return FileKind::Empty;
  if (start.starts_with(std::string_view{trace_format::magic, sizeof trace_format::magic})) {
    return FileKind::CuvmmTrace;
  }
  if (start.starts_with("cuvmm[")) return FileKind::CuvmmLog;
  if (start.size() > 1 && start[0] == '\x80' && static_cast<unsigned char>(start[1]) <= 0x10)
    return FileKind::Pickle;
  if (start.starts_with("PK\x03\x04")) return FileKind::ZipArchive;
  if (start.starts_with("\x7f"
                        "ELF"))
    return FileKind::Program;
  if (start.starts_with("\x89PNG") || start.starts_with("<svg") || start.starts_with("<!doctype") ||
      start.starts_with("<!DOCTYPE")) {
    return FileKind::Picture;
  }
  return kind_of_text(start);
}

}  // namespace

Result<FileKind> kind_of_file(const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) return cannot_open(errno);
  if (S_ISDIR(facts.st_mode)) return cannot_open(EISDIR);
  if (!S_ISREG(facts.st_mode)) return Error::invalid("open trace", "not a regular file");
  errno = 0;
  const std::unique_ptr<std::remove_pointer_t<gzFile>, CloseStart> file{
      ::gzopen(path.c_str(), "rbe")};
  if (file == nullptr) return cannot_open(errno != 0 ? errno : ENOMEM);
  std::array<char, 4096> start{};
  errno = 0;
  const int count = ::gzread(file.get(), start.data(), start.size());
  if (count < 0) return errno != 0 ? Result<FileKind>{cannot_open(errno)} : FileKind::Unknown;
  return kind_of_start({start.data(), static_cast<std::size_t>(count)});
}

const char* name_of(FileKind kind) {
  switch (kind) {
    case FileKind::CuvmmTrace:
      return "a trace of cuvmm";
    case FileKind::CuvmmLog:
      return "a log of cuvmm";
    case FileKind::Pickle:
      return "a Python pickle";
    case FileKind::PytorchTable:
      return "PyTorch's memory history, as a table";
    case FileKind::RmmLog:
      return "a log of RMM";
    case FileKind::Empty:
      return "an empty file";
    case FileKind::ZipArchive:
      return "a zip archive, as torch.save() writes them; a memory snapshot is written by "
             "torch.cuda.memory._dump_snapshot()";
    case FileKind::Json:
      return "JSON";
    case FileKind::Program:
      return "a program or a library";
    case FileKind::Picture:
      return "a picture or a document";
    case FileKind::OtherTable:
      return "a table, but not one of PyTorch's memory history or of RMM's";
    case FileKind::Unknown:
      return "in an unknown format";
  }
  return "in an unknown format";
}

}  // namespace cuvmm::replay
