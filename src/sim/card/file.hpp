// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "base/own_fd.hpp"
#include "base/result.hpp"
#include "sim/card/books.hpp"

namespace cuvmm::sim {

struct CardShape {
  int devices = 1;
  Size memory = 0;  // of each device
};

// The file behind a shared card, and the locks on its bytes. The kernel releases the locks of a
// process when it ends in any way, so a held lock proves that its process is alive. Locks belong to
// the open file description, which the mapping keeps open even if the program closes the
// descriptor. A CardFile must not be used by two threads at a time. A forked child has no mapping
// and must close its descriptor.
class CardFile {
 public:
  // Creates the card if it does not exist, and resets it to this shape if no living process uses
  // it. Refuses a file that does not belong to this user alone, and logs the reason in one line.
  static Result<CardFile> open(const std::string& name, const CardShape& shape);

  CardFile(CardFile&& other) noexcept;
  CardFile& operator=(CardFile&&) = delete;
  ~CardFile();

  CardBooks& books() const { return *books_; }

  // Locks the books against other processes. Each change is a single store, so a process that is
  // killed while it holds the lock leaves nothing half done.
  class Held {
   public:
    explicit Held(CardFile& file);
    ~Held();
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    // False if the program closed the file's descriptor and it cannot be reopened.
    explicit operator bool() const { return holds_; }

   private:
    CardFile& file_;
    const bool holds_;
  };

  // The caller must hold a `Held` for these.
  std::optional<std::size_t> take_place();
  // Frees what dead processes held. `own` is this process's place, if it has one: its lock looks
  // unlocked to its own process.
  void remove_dead(std::optional<std::size_t> own);

  // Safe in a forked child: closes the child's copy, and the parent keeps its locks.
  void close_in_child() { file_.close(); }

 private:
  CardFile(std::string path, OwnFd file, const FileIdentity& identity, CardBooks* books)
      : path_(std::move(path)), identity_(identity), file_(std::move(file)), books_(books) {}
  bool lock_books();
  bool reopen();
  bool has_living_member(std::optional<std::size_t> own) const;
  bool is_locked_by_another(std::size_t place) const;
  Result<void> prepare(const CardShape& shape);

  const std::string path_;
  const FileIdentity identity_;
  OwnFd file_;
  CardBooks* books_;
};

// What the member has on the device; nothing while it is checkpointed.
Size held_by(const CardMember& member, int device);
// The sum over all members. Exact only right after remove_dead().
Size held_on(const CardBooks& books, int device);

// The PID namespace of this process.
std::uint64_t pid_namespace();

}  // namespace cuvmm::sim
