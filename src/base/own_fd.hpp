// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "base/fd.hpp"
#include "base/file_identity.hpp"

namespace cuvmm {

// A descriptor of ours that stays open while the program runs. Programs that close all numbers
// (daemon does) give ours to files of theirs, which are neither to be used nor to be closed: so
// each time it is asked whether it still is the file it was. Its number is out of the way of
// programs that count on low ones, where the limit leaves one.
class OwnFd {
 public:
  OwnFd() = default;
  explicit OwnFd(Fd file);
  OwnFd(OwnFd&& other) noexcept;
  OwnFd& operator=(OwnFd&& other) noexcept;
  OwnFd(const OwnFd&) = delete;
  OwnFd& operator=(const OwnFd&) = delete;
  ~OwnFd() { close(); }

  // And still ours.
  bool is_open() const;
  int number() const { return file().number(); }
  // For a call, or a closed one.
  const Fd& file() const;
  void close();

  // What it was made with, whatever has become of it; nothing where it was made with none.
  struct Made {
    int number = -1;
    FileIdentity file;
  };
  std::optional<Made> made() const;

 private:
  Fd file_;
  std::optional<FileIdentity> identity_;
};

// Under a number out of the way, if there is one.
Fd out_of_the_way(Fd file);

}  // namespace cuvmm
