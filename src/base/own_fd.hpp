// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "base/fd.hpp"
#include "base/file_identity.hpp"

namespace cuvmm {

// A descriptor of cuvmm's that stays open while the program runs. A program that closes all
// descriptors (as daemon() does) may reuse the number for its own file, which cuvmm must neither
// use nor close. So each use first checks that the number still refers to the original file. Some
// files cannot be told apart, such as two exports of memory, so the open file also bears a mark:
// the signal that it would send if it were asynchronous, which it is not. The number is high, if
// the limit allows, to stay clear of programs that expect low ones.
class OwnFd {
 public:
  OwnFd() = default;
  explicit OwnFd(Fd file);
  OwnFd(OwnFd&& other) noexcept;
  OwnFd& operator=(OwnFd&& other) noexcept;
  OwnFd(const OwnFd&) = delete;
  OwnFd& operator=(const OwnFd&) = delete;
  ~OwnFd() { close(); }

  // Open, and still the original file.
  bool is_open() const;
  int number() const { return file().number(); }
  // Returns the descriptor for use in a call, or a closed one.
  const Fd& file() const;
  void close();

  // The original number and file, even if the program has closed it since; nullopt if there never
  // was a file.
  struct Made {
    int number = -1;
    FileIdentity file;
    bool is_marked = false;

    bool is_still_open() const;
  };
  std::optional<Made> made() const { return made_; }

 private:
  Fd file_;
  std::optional<Made> made_;
};

// Moves the descriptor to a high number if one is free.
Fd move_to_high_number(Fd file);

}  // namespace cuvmm
