// SPDX-License-Identifier: Apache-2.0
#include "share/figures.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "base/without_signals.hpp"
#include "share/figures_file.hpp"
#include "share/runtime_socket.hpp"
#include "share/system_error.hpp"

namespace cuvmm::share {
namespace {

constexpr const char* answering = "answer for figures";

Error gone() {
  return {.kind = ErrorKind::NotFound, .doing = answering, .subject = "the file is gone"};
}

// The words of the command line, separated by spaces, as many as fit.
void read_own_command(std::array<char, 256>& place) {
  const Fd file{::open("/proc/thread-self/cmdline", O_RDONLY | O_CLOEXEC)};
  if (!file.is_open()) return;
  const ssize_t got = ::read(file.number(), place.data(), place.size() - 1);
  if (got > 1) std::replace(place.begin(), place.begin() + got - 1, '\0', ' ');
}

// A write beyond RLIMIT_FSIZE would raise SIGXFSZ, which ends the process by default.
bool may_write(std::size_t bytes) {
  rlimit limit{};
  return ::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur >= bytes;
}

// Puts the complete file in place atomically, replacing one left by a dead process with the same
// pid.
Result<Fd> make_file(const std::string& path, const FiguresLayout& content) {
  constexpr const char* doing = "publish figures";
  if (!may_write(sizeof content)) return Error::invalid(doing, "files may not be so large");
  const std::string fresh = path + ".new";
  ::unlink(fresh.c_str());
  Fd file{
      ::open(fresh.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR)};
  if (!file.is_open()) return system_error(doing);
  const ssize_t written = ::pwrite(file.number(), &content, sizeof content, 0);
  if (written == static_cast<ssize_t>(sizeof content) &&
      ::rename(fresh.c_str(), path.c_str()) == 0) {
    return file;
  }
  const Error error = system_error(doing);
  ::unlink(fresh.c_str());
  return error;
}

}  // namespace

Publisher Publisher::of_this_process() {
  Publisher publisher;
  publisher.magic = figures_magic;
  publisher.process = ::getpid();
  publisher.namespace_of_process = namespace_of_processes();
  publisher.start_ticks = state_of(::getpid()).start_ticks;
  read_own_command(publisher.command);
  return publisher;
}

Result<PublishedFigures> PublishedFigures::publish(const Publisher& publisher) {
  const std::string folder = TRY(private_folder());
  remove_figures_of_the_dead(TRY(PrivateFolder::open(folder)));
  const std::string path = folder + "/" + figures_file_name(publisher);
  FiguresLayout content;
  content.publisher = publisher;
  const Fd file = TRY(make_file(path, content));
  const auto identity = FileIdentity::of(file.number());
  // A forked child does not inherit the mapping: it publishes a file of its own.
  void* const mapping =
      ::mmap(nullptr, sizeof content, PROT_READ | PROT_WRITE, MAP_SHARED, file.number(), 0);
  if (mapping == MAP_FAILED || !identity ||
      ::madvise(mapping, sizeof content, MADV_DONTFORK) != 0) {
    const Error error = system_error("publish figures");
    if (mapping != MAP_FAILED) ::munmap(mapping, sizeof content);
    ::unlink(path.c_str());
    return error;
  }
  return PublishedFigures{path, mapping, *identity};
}

PublishedFigures::PublishedFigures(std::string path, void* mapping, const FileIdentity& file)
    : path_(std::move(path)), mapping_(mapping), file_(file), process_(::getpid()) {}

PublishedFigures::PublishedFigures(PublishedFigures&& other) noexcept
    : path_(std::move(other.path_)),
      mapping_(std::exchange(other.mapping_, nullptr)),
      file_(other.file_),
      process_(other.process_),
      answered_(other.answered_) {}

PublishedFigures::~PublishedFigures() {
  if (mapping_ == nullptr || process_ != ::getpid()) return;
  remove();
  ::munmap(mapping_, sizeof(FiguresLayout));
}

// Opens the file for each answer, so that a program that closes every descriptor cannot break it,
// and no file of the program is ever mistaken for this one.
Result<Fd> PublishedFigures::open_again() const {
  Fd file{::open(path_.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)};
  if (!file.is_open() && errno != ENOENT && errno != ELOOP) return system_error(answering);
  if (file.is_open() && FileIdentity::of(file.number()) == file_) return file;
  return gone();
}

Result<std::optional<std::uint32_t>> PublishedFigures::wait_for_question(Duration at_most) {
  const timespec bound{.tv_sec = at_most.count() / 1'000'000,
                       .tv_nsec = at_most.count() % 1'000'000 * 1000};
  auto* const question = static_cast<std::byte*>(mapping_) + offsetof(FiguresLayout, question);
  const long woken = ::syscall(SYS_futex, question, FUTEX_WAIT, answered_, &bound, nullptr, 0);
  if (woken != 0 && errno == ETIMEDOUT) return std::optional<std::uint32_t>{};
  if (woken != 0 && errno == EFAULT) return gone();  // the file was truncated
  if (woken != 0 && errno != EAGAIN && errno != EINTR) return system_error("wait to be asked");
  const Fd file = TRY(open_again());
  std::uint32_t asked = 0;
  const ssize_t got =
      ::pread(file.number(), &asked, sizeof asked, offsetof(FiguresLayout, question));
  if (got < 0) return system_error("wait to be asked");
  if (got != static_cast<ssize_t>(sizeof asked)) return gone();
  return asked == answered_ ? std::optional<std::uint32_t>{} : asked;
}

Result<void> PublishedFigures::answer(Figures figures, std::uint32_t question) {
  figures.question = question;
  figures.time_us = now_us();
  figures.checksum = checksum_of(figures);
  const Fd file = TRY(open_again());
  const WithoutWriteSignals quiet;
  if (::pwrite(file.number(), &figures, sizeof figures, offsetof(FiguresLayout, answer)) !=
      static_cast<ssize_t>(sizeof figures)) {
    return system_error(answering);
  }
  answered_ = question;
  return {};
}

// A forked child must not remove its parent's file when it ends.
void PublishedFigures::remove() const {
  if (process_ == ::getpid()) ::unlink(path_.c_str());
}

}  // namespace cuvmm::share
