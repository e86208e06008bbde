// SPDX-License-Identifier: Apache-2.0
#include "sim/card/shared_card.hpp"

#include "base/log.hpp"

namespace cuvmm::sim {
namespace {

void say_that_it_is_lost() {
  CUVMM_LOG_ONCE(Error,
                 "the program closed the shared card's file, which cannot be opened again: no more "
                 "memory is granted");
}

}  // namespace

Result<std::unique_ptr<SharedCard>> SharedCard::join(const std::string& name,
                                                     const CardShape& shape) {
  CardFile file = TRY(CardFile::open(name, shape));
  std::optional<std::size_t> place;
  {
    const CardFile::Held held{file};
    if (held) place = file.take_place();
  }
  if (!place) {
    CUVMM_LOG(Error, "the simulated card %s already has as many processes as it can have: %zu",
              name.c_str(), most_card_members);
    return Error::invalid("share a simulated card", "too many processes use it");
  }
  return std::unique_ptr<SharedCard>{new SharedCard{std::move(file), *place}};
}

std::atomic<Size>& SharedCard::held_on_device(int device) const {
  return books().members[place_].held[static_cast<std::size_t>(device)];
}

bool SharedCard::take(int device, Size bytes) {
  const Holding holding{lock_};
  const CardFile::Held held{file_};
  if (!held) {
    say_that_it_is_lost();
    return false;
  }
  const auto fits = [&] {
    return bytes <= memory() && held_on(books(), device) <= memory() - bytes;
  };
  if (!fits()) {
    file_.remove_dead(place_);
    if (!fits()) return false;
  }
  held_on_device(device) += bytes;
  return true;
}

void SharedCard::give_back(int device, Size bytes) {
  held_on_device(device) -= bytes;
}

SharedCard::Use SharedCard::use_of(int device) {
  const Holding holding{lock_};
  const CardFile::Held held{file_};
  if (held) file_.remove_dead(place_);
  Use use{.held = held_on_device(device), .held_by_all = held_on(books(), device)};
  for (const CardMember& member : books().members) use.processes += member.process != 0 ? 1 : 0;
  return use;
}

void SharedCard::remove_dead() {
  with_books([](CardBooks&) {});
}

bool SharedCard::with_books(const std::function<void(CardBooks&)>& use) {
  const Holding holding{lock_};
  const CardFile::Held held{file_};
  if (!held) return false;
  file_.remove_dead(place_);
  use(books());
  return true;
}

}  // namespace cuvmm::sim
