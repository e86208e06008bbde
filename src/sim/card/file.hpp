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

// The file behind a shared card, and the locks on its bytes. The kernel drops the locks of a
// process that ends, however it ends, so a lock says that its process is alive and none outlives
// it. Locks belong to the open file, which the mapping keeps open whatever the program closes: one
// CardFile is for one thread at a time. A forked child has no mapping and must close its
// descriptor.
class CardFile {
 public:
  // Makes the card where there is none, and makes it anew, with this shape, where no living process
  // uses it. Refuses a file that is not this user's alone. One line in the log says why.
  static Result<CardFile> open(const std::string& name, const CardShape& shape);

  CardFile(CardFile&& other) noexcept;
  CardFile& operator=(CardFile&&) = delete;
  ~CardFile();

  CardBooks& books() const { return *books_; }

  // Holds the books still between processes. A process that is killed while it holds them leaves
  // nothing half done: each change is one store.
  class Held {
   public:
    explicit Held(CardFile& file);
    ~Held();
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    // Not where the program closed the file's descriptor and it cannot be opened again.
    explicit operator bool() const { return holds_; }

   private:
    CardFile& file_;
    const bool holds_;
  };

  // These need the books held.
  std::optional<std::size_t> take_place();
  // Frees what dead processes held. `own` is a place that is ours, whose lock cannot be told from
  // none.
  void remove_dead(std::optional<std::size_t> own);

  // Safe in a forked child: gives the locks up there, and keeps them here.
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

// Sums over all members; what is asked of a card after remove_dead() is exact.
Size held_on(const CardBooks& books, int device);

// Of this process.
std::uint64_t namespace_of_process_numbers();

}  // namespace cuvmm::sim
