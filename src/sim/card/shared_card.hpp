// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/lock.hpp"
#include "sim/card/file.hpp"

namespace cuvmm::sim {

// A process's place on a card that it shares with other processes of its user (VMM_SIM_CARD). When
// the process ends, its place and everything that it held become free.
class SharedCard {
 public:
  // The first process sets the card's number of devices and memory.
  static Result<std::unique_ptr<SharedCard>> join(const std::string& name, const CardShape& shape);

  int device_count() const { return static_cast<int>(file_.books().devices); }
  Size memory() const { return file_.books().memory; }

  // Returns false and takes nothing if all processes together would hold too much, or if the
  // program closed the card's file and it cannot be reopened.
  bool take(int device, Size bytes);
  void give_back(int device, Size bytes);

  struct Use {
    Size held = 0;         // by this process
    Size held_by_all = 0;  // by all living processes
    std::uint32_t processes = 0;
  };
  Use use_of(int device);

  // Frees what dead processes held, and withdraws their requests for turns.
  void remove_dead();

  // Calls `use` while no other process changes the books, after remove_dead(). Returns false if the
  // program closed the card's file and it cannot be reopened.
  bool with_books(const std::function<void(CardBooks&)>& use);

  std::size_t place() const { return place_; }
  CardBooks& books() const { return file_.books(); }

  void close_in_child() { file_.close_in_child(); }

 private:
  SharedCard(CardFile file, std::size_t place) : file_(std::move(file)), place_(place) {}
  std::atomic<Size>& held_on_device(int device) const;

  CardFile file_;
  const std::size_t place_;
  Lock lock_{LockOrder::SimCard};  // one thread at a time: file locks are per process
};

}  // namespace cuvmm::sim
