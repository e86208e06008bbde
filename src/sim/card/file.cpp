// SPDX-License-Identifier: Apache-2.0
#include "sim/card/file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>

#include "base/log.hpp"
#include "sim/cuda.hpp"

namespace cuvmm::sim {
namespace {

constexpr const char* joining = "share a simulated card";
constexpr std::uint64_t books_mark = 0x0002'6472'6163'7663;  // "cvcard" and the layout version

// The lock on byte 0 is that of the books; each member's place has one of the bytes after it.
constexpr off_t books_byte = 0;
off_t byte_of(std::size_t place) {
  return static_cast<off_t>(1 + place);
}

int lock_call(int file, int command, short type, off_t byte) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  int answer = 0;
  do {
    answer = ::fcntl(file, command, &lock);
  } while (answer != 0 && errno == EINTR);
  return answer == 0 && command == F_OFD_GETLK ? lock.l_type : answer;
}

std::string path_of(const std::string& name) {
  return "/dev/shm/cuvmm-sim-card-" + std::to_string(::geteuid()) + "-" + name;
}

Error system_said(int code, const std::string& path) {
  CUVMM_LOG(Error, "cannot open the simulated card's file %s: %s", path.c_str(),
            std::strerror(code));
  return {.kind = ErrorKind::SystemFailed, .system_code = code, .doing = joining};
}

// Checked before anything is written to the file.
Result<void> check_owner(int file, const std::string& path) {
  struct stat facts {};
  if (::fstat(file, &facts) != 0) return system_said(errno, path);
  const bool others_may = (facts.st_mode & (S_IRWXG | S_IRWXO)) != 0;
  if (S_ISREG(facts.st_mode) && facts.st_uid == ::geteuid() && !others_may) return {};
  CUVMM_LOG(Error, "the simulated card's file %s is accessible to other users: remove it",
            path.c_str());
  return Error::invalid(joining, "its file is not this user's alone");
}

void clear(CardMember& member) {
  member.process = 0;
  member.checkpoint = CU_PROCESS_STATE_RUNNING;
  member.calls = 0;
  for (auto& held : member.held) held = 0;
  for (auto& engines : member.engines) {
    for (EngineUse& use : engines) {
      use.wanted = 0;
      use.turns = 0;
      use.busy_ns = 0;
    }
  }
}

}  // namespace

Result<CardFile> CardFile::open(const std::string& name, const CardShape& shape) {
  const std::string path = path_of(name);
  OwnFd file{Fd{::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK,
                       S_IRUSR | S_IWUSR)}};
  if (!file.is_open()) return system_said(errno, path);
  TRY(check_owner(file.number(), path));
  // Allocates all of the file before it is mapped, so that a full file system fails here instead of
  // raising a signal later.
  if (const int code = ::posix_fallocate(file.number(), 0, sizeof(CardBooks)); code != 0) {
    return system_said(code, path);
  }
  void* books =
      ::mmap(nullptr, sizeof(CardBooks), PROT_READ | PROT_WRITE, MAP_SHARED, file.number(), 0);
  if (books == MAP_FAILED) return system_said(errno, path);
  const FileIdentity identity = file.made()->file;
  CardFile card{path, std::move(file), identity, static_cast<CardBooks*>(books)};
  // Otherwise a forked child would keep our locks.
  if (::madvise(books, sizeof(CardBooks), MADV_DONTFORK) != 0) return system_said(errno, path);
  {
    const Held held{card};
    if (!held) return system_said(errno, path);
    TRY(card.prepare(shape));
  }
  return card;
}

CardFile::CardFile(CardFile&& other) noexcept
    : path_(other.path_),
      identity_(other.identity_),
      file_(std::move(other.file_)),
      books_(std::exchange(other.books_, nullptr)) {}

CardFile::~CardFile() {
  if (books_ != nullptr) ::munmap(books_, sizeof(CardBooks));
}

Result<void> CardFile::prepare(const CardShape& shape) {
  if (has_living_member({})) {
    if (books_->mark == books_mark) return {};
    CUVMM_LOG(Error, "processes of another version of the simulated driver use this card");
    return Error::invalid(joining, "processes of another version use it");
  }
  books_ = new (books_) CardBooks{};
  books_->devices = static_cast<std::uint64_t>(shape.devices);
  books_->memory = shape.memory;
  books_->mark = books_mark;
  return {};
}

// For programs that close all open descriptors, as daemon() does.
bool CardFile::reopen() {
  file_ = OwnFd{};
  OwnFd again{Fd{::open(path_.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK)}};
  if (!again.is_open() || again.made()->file != identity_) return false;
  file_ = std::move(again);
  return true;
}

bool CardFile::lock_books() {
  return (file_.is_open() || reopen()) &&
         lock_call(file_.number(), F_OFD_SETLKW, F_WRLCK, books_byte) == 0;
}

CardFile::Held::Held(CardFile& file) : file_(file), holds_(file.lock_books()) {}

CardFile::Held::~Held() {
  if (holds_) lock_call(file_.file_.number(), F_OFD_SETLK, F_UNLCK, books_byte);
}

bool CardFile::is_locked_by_another(std::size_t place) const {
  return lock_call(file_.number(), F_OFD_GETLK, F_WRLCK, byte_of(place)) != F_UNLCK;
}

bool CardFile::has_living_member(std::optional<std::size_t> own) const {
  for (std::size_t place = 0; place < most_card_members; ++place) {
    if (place != own && is_locked_by_another(place)) return true;
  }
  return false;
}

std::optional<std::size_t> CardFile::take_place() {
  for (std::size_t place = 0; place < most_card_members; ++place) {
    if (lock_call(file_.number(), F_OFD_SETLK, F_WRLCK, byte_of(place)) != 0) continue;
    CardMember& member = books_->members[place];
    clear(member);
    member.process_namespace = pid_namespace();
    member.process = static_cast<std::uint64_t>(::getpid());
    return place;
  }
  return {};
}

void CardFile::remove_dead(std::optional<std::size_t> own) {
  for (std::size_t place = 0; place < most_card_members; ++place) {
    CardMember& member = books_->members[place];
    if (place == own || member.process == 0 || is_locked_by_another(place)) continue;
    clear(member);
  }
}

std::uint64_t pid_namespace() {
  struct stat facts {};
  return ::stat("/proc/self/ns/pid", &facts) == 0 ? facts.st_ino : 0;
}

Size held_by(const CardMember& member, int device) {
  if (member.checkpoint.load() == CU_PROCESS_STATE_CHECKPOINTED) return 0;
  return member.held[static_cast<std::size_t>(device)].load();
}

Size held_on(const CardBooks& books, int device) {
  Size sum = 0;
  for (const CardMember& member : books.members) sum += held_by(member, device);
  return sum;
}

}  // namespace cuvmm::sim
