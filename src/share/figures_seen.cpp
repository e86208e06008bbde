// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <utility>

#include "share/figures_file.hpp"
#include "share/runtime_socket.hpp"
#include "share/system_error.hpp"

namespace cuvmm::share {
namespace {

constexpr const char* looking = "look at figures";

Error process_gone() {
  return {.kind = ErrorKind::NotFound, .doing = looking, .subject = "the process has ended"};
}

// Whether the process has the file mapped, which it does until it ends or calls exec. Also true if
// its mappings cannot be read.
bool has_mapped(pid_t process, const std::string& path) {
  std::ifstream maps{"/proc/" + std::to_string(process) + "/maps"};
  bool read_any = false;
  for (std::string line; std::getline(maps, line);) {
    read_any = true;
    if (line.ends_with(path)) return true;
  }
  return !read_any;
}

}  // namespace

Result<SeenFigures> SeenFigures::open(const std::string& path) {
  return open_file(path, O_NOFOLLOW, ::geteuid());
}

Result<SeenFigures> SeenFigures::open(const FiguresMapping& mapping) {
  const ProcessState state = state_of(mapping.process);
  const auto identity = identity_of(mapping.process);
  if (!state.runs || !identity) return process_gone();
  SeenFigures seen = TRY(open_file(mapping.link, 0, identity->user));
  if (seen.publisher_.process != identity->innermost) {
    return Error::invalid(looking, "the file is another process's");
  }
  seen.process_ = mapping.process;
  seen.start_ticks_ = state.start_ticks;
  return seen;
}

Result<SeenFigures> SeenFigures::open_file(const std::string& path, int follows, uid_t user) {
  Fd file{::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC | follows)};
  if (!file.is_open()) return system_error(looking);
  struct stat facts;
  if (::fstat(file.number(), &facts) != 0) return system_error(looking);
  if (!S_ISREG(facts.st_mode) || facts.st_uid != user ||
      (facts.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return Error::invalid(looking, user == ::geteuid() ? "the file is not this user's alone"
                                                       : "the file is not its user's alone");
  }
  Publisher publisher;
  if (::pread(file.number(), &publisher, sizeof publisher, 0) !=
          static_cast<ssize_t>(sizeof publisher) ||
      publisher.magic != figures_magic || facts.st_size < off_t{sizeof(FiguresLayout)}) {
    return Error::invalid(looking, "it is not a file of figures");
  }
  if (publisher.version != figures_version) {
    return Error{.kind = ErrorKind::NotSupported,
                 .doing = looking,
                 .subject = "the process is of another version"};
  }
  publisher.library_version.back() = publisher.mode.back() = publisher.name.back() =
      publisher.command.back() = '\0';
  // Only the address of the question is used, to wake the process.
  void* const mapping =
      ::mmap(nullptr, sizeof(FiguresLayout), PROT_READ, MAP_SHARED, file.number(), 0);
  if (mapping == MAP_FAILED) return system_error(looking);
  SeenFigures seen{path, std::move(file), mapping, publisher};
  seen.user_ = user;
  return seen;
}

SeenFigures::SeenFigures(std::string path, Fd file, void* mapping, const Publisher& publisher)
    : path_(std::move(path)),
      file_(std::move(file)),
      mapping_(mapping),
      publisher_(publisher),
      process_(publisher.process),
      start_ticks_(publisher.start_ticks) {}

SeenFigures::SeenFigures(SeenFigures&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::move(other.file_)),
      mapping_(std::exchange(other.mapping_, nullptr)),
      publisher_(other.publisher_),
      process_(other.process_),
      start_ticks_(other.start_ticks_),
      user_(other.user_),
      question_(other.question_),
      figures_(other.figures_) {}

SeenFigures& SeenFigures::operator=(SeenFigures&& other) noexcept {
  path_ = std::move(other.path_);
  file_ = std::move(other.file_);
  std::swap(mapping_, other.mapping_);
  publisher_ = other.publisher_;
  process_ = other.process_;
  start_ticks_ = other.start_ticks_;
  user_ = other.user_;
  question_ = other.question_;
  figures_ = other.figures_;
  return *this;
}

SeenFigures::~SeenFigures() {
  if (mapping_ != nullptr) ::munmap(mapping_, sizeof(FiguresLayout));
}

void SeenFigures::ask() {
  // Continues from the number in the file, since others may be looking at the same process.
  constexpr off_t place = offsetof(FiguresLayout, question);
  std::uint32_t question = 0;
  if (::pread(file_.number(), &question, sizeof question, place) !=
      static_cast<ssize_t>(sizeof question)) {
    return;
  }
  question_ = question == UINT32_MAX ? 1 : question + 1;
  if (::pwrite(file_.number(), &question_, sizeof question_, place) !=
      static_cast<ssize_t>(sizeof question_)) {
    return;
  }
  ::syscall(SYS_futex, static_cast<std::byte*>(mapping_) + place, FUTEX_WAKE, INT_MAX, nullptr,
            nullptr, 0);
}

bool SeenFigures::look() {
  Figures now;
  if (::pread(file_.number(), &now, sizeof now, offsetof(FiguresLayout, answer)) ==
          static_cast<ssize_t>(sizeof now) &&
      now.checksum == checksum_of(now)) {
    now.device_count = std::min<std::uint32_t>(now.device_count, Figures::most_devices);
    now.region_count = std::min<std::uint32_t>(now.region_count, Figures::most_regions);
    for (RegionFigures& region : now.regions) region.what.back() = '\0';
    figures_ = now;
  }
  return is_answered();
}

// An answer to a later question counts too: it may be another reader's, but it is just as recent.
bool SeenFigures::is_answered() const {
  return question_ != 0 && figures_.question >= question_;
}

// Does not remove a file that has since replaced this one.
void SeenFigures::remove_file() const {
  if (is_found_by_mapping()) return;
  struct stat mine;
  struct stat there;
  if (::fstat(file_.number(), &mine) == 0 && ::lstat(path_.c_str(), &there) == 0 &&
      mine.st_dev == there.st_dev && mine.st_ino == there.st_ino) {
    ::unlink(path_.c_str());
  }
}

bool SeenFigures::is_numbered_here() const {
  if (is_found_by_mapping()) return true;
  const std::uint64_t here = namespace_of_processes();
  return here != 0 && publisher_.namespace_of_process == here;
}

bool SeenFigures::has_ended() const {
  struct stat facts;
  if (::fstat(file_.number(), &facts) != 0 || facts.st_nlink == 0) return true;
  if (!is_numbered_here()) return false;
  const ProcessState state = state_of(process_);
  if (!state.runs || state.start_ticks != start_ticks_) return true;
  if (is_answered()) return false;
  return is_found_by_mapping() ? !FileIdentity::at(path_) : !has_mapped(process_, path_);
}

FiguresFiles find_figures() {
  FiguresFiles found;
  const auto look_into = [&found](const std::string& path) -> Result<void> {
    const PrivateFolder folder = TRY(PrivateFolder::open(path));
    remove_figures_of_the_dead(folder);
    for (const std::string& name : figures_in(folder)) found.paths.push_back(folder.path_of(name));
    return {};
  };
  for (const std::string& path : usual_folders()) {
    const auto looked = look_into(path);
    if (looked.ok() || looked.error().kind == ErrorKind::NotFound) continue;
    found.problems.push_back(path + ": " + looked.error().text());
  }
  // Other users may have made any of these folders, so an error here means nothing.
  for (const std::string& path : fresh_folders()) static_cast<void>(look_into(path).ok());
  return found;
}

}  // namespace cuvmm::share
