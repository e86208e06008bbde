// SPDX-License-Identifier: Apache-2.0
#include "sim/card/turns.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

#include "base/clock.hpp"
#include "sim/cost_model.hpp"
#include "sim/device.hpp"

namespace cuvmm::sim {
namespace {

constexpr TurnRules rules;

// The holder word: in the upper bits, the turn's number; in the lower, the holder's place + 1, or 0
// if there is no holder.
constexpr std::uint32_t place_bits = 8;
constexpr std::uint32_t place_mask = (1U << place_bits) - 1;
static_assert(most_card_members < place_mask);

std::optional<std::size_t> place_in(std::uint32_t word) {
  if ((word & place_mask) == 0) return {};
  return (word & place_mask) - 1;
}
std::uint32_t next_word(std::uint32_t word, std::size_t place) {
  return (((word >> place_bits) + 1) << place_bits) | static_cast<std::uint32_t>(place + 1);
}

std::optional<CardEngine> engine_for(CUgraphNodeType work) {
  switch (work) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return CardEngine::Compute;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return CardEngine::Copy;
    default:
      return {};
  }
}

// One engine of one device, from the point of view of one process.
class Turns {
 public:
  Turns(SharedCard& card, std::size_t device, std::size_t engine)
      : card_(card),
        device_(device),
        engine_(engine),
        turn_(card.books().turns[device][engine]),
        own_(use_of(card.place())) {}

  void want() { own_.wanted.fetch_add(1); }

  // Called before work runs. If the slice is used up and other members want the engine, they go
  // first.
  void begin() {
    for (;;) {
      const std::uint32_t word = turn_.holder.load();
      if (is_ours(word) && !(slice_is_used_up() && next_after(word))) return;
      advance(word);
    }
  }

  // Regains the turn for work that ran on after the turn was lost.
  void resume() {
    for (;;) {
      const std::uint32_t word = turn_.holder.load();
      if (is_ours(word)) return;
      advance(word);
    }
  }

  bool is_ours() const { return is_ours(turn_.holder.load()); }
  std::uint64_t began_ns() const { return turn_.began_ns.load(); }

  void charge(std::uint64_t device_ns) {
    turn_.charged_ns.fetch_add(device_ns);
    own_.busy_ns.fetch_add(device_ns);
  }

  // A holder without work keeps the turn for a moment, since more work may follow.
  void finish() {
    turn_.idle_since_ns.store(now_ns());
    own_.wanted.fetch_sub(1);
    wake();
  }

 private:
  EngineUse& use_of(std::size_t place) const {
    return card_.books().members[place].engines[device_][engine_];
  }
  bool is_ours(std::uint32_t word) const { return place_in(word) == card_.place(); }
  bool slice_is_used_up() const { return turn_.charged_ns.load() >= rules.slice_ns; }

  // The next member after the holder, in the order of places, that wants the engine.
  std::optional<std::size_t> next_after(std::uint32_t word) const {
    const std::size_t holder = place_in(word).value_or(most_card_members - 1);
    for (std::size_t step = 1; step < most_card_members; ++step) {
      const std::size_t place = (holder + step) % most_card_members;
      if (use_of(place).wanted.load() != 0) return place;
    }
    return {};
  }

  // Passes the turn on if it is over; otherwise waits until it may be over.
  void advance(std::uint32_t word) {
    const std::optional<std::size_t> holder = place_in(word);
    if (!holder) return pass(word, card_.place());
    const std::uint64_t now = now_ns();
    const bool is_idle = use_of(*holder).wanted.load() == 0;
    const std::uint64_t since = is_idle ? turn_.idle_since_ns.load() : turn_.began_ns.load();
    const std::uint64_t most = is_idle ? rules.idle_ns : rules.longest_ns;
    const std::uint64_t passed = now > since ? now - since : 0;
    const bool is_late = passed >= most;
    if (!is_late && !slice_is_used_up()) return wait(word, most - passed);
    if (is_late && !is_idle) card_.remove_dead();
    if (const auto next = next_after(word)) return pass(word, *next);
    wait(word, rules.idle_ns);
  }

  void pass(std::uint32_t word, std::size_t place) {
    if (!turn_.holder.compare_exchange_strong(word, next_word(word, place))) return;
    turn_.charged_ns.store(0);
    turn_.idle_since_ns.store(now_ns());
    turn_.began_ns.store(now_ns());
    use_of(place).turns.fetch_add(1);
    wake();
  }

  void wait(std::uint32_t word, std::uint64_t most_ns) {
    const timespec most{.tv_sec = 0, .tv_nsec = static_cast<long>(most_ns)};
    ::syscall(SYS_futex, &turn_.holder, FUTEX_WAIT, word, &most, nullptr, 0);
  }
  void wake() { ::syscall(SYS_futex, &turn_.holder, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

  SharedCard& card_;
  const std::size_t device_;
  const std::size_t engine_;
  EngineTurn& turn_;
  EngineUse& own_;
};

}  // namespace

OnEngine::OnEngine(const Device& device, CUgraphNodeType work) {
  const auto engine = engine_for(work);
  if (device.card() == nullptr || !engine) return;
  card_ = device.card();
  device_ = static_cast<std::size_t>(device.number());
  engine_ = static_cast<std::size_t>(*engine);
  Turns turns{*card_, device_, engine_};
  turns.want();
  turns.begin();
  began_ns_ = now_ns();
  modelled_before_ns_ = modelled_ns_of_this_thread();
}

// Work with a modelled time is charged that time. For a kernel, only its host function's time is
// known.
OnEngine::~OnEngine() {
  if (card_ == nullptr) return;
  Turns turns{*card_, device_, engine_};
  const std::int64_t modelled = modelled_ns_of_this_thread() - modelled_before_ns_;
  const std::uint64_t now = now_ns();
  const std::uint64_t since = std::max(began_ns_, turns.began_ns());
  const bool ran_in_its_turn = turns.is_ours();
  turns.resume();
  if (modelled > 0) {
    turns.charge(static_cast<std::uint64_t>(modelled));
  } else if (ran_in_its_turn && now > since) {
    turns.charge(now - since);
  }
  turns.finish();
}

}  // namespace cuvmm::sim
