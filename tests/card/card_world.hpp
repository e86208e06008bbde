// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/size.hpp"
#include "support/child.hpp"
#include "support/driver_under_test.hpp"

namespace cuvmm::test {

// What a process of the card is told to do, one at a time; each is answered.
enum class Order : std::uint8_t {
  Allocate,  // bytes; answered with the CUresult
  Free,      // the newest allocation; answered with the CUresult
  Look,      // answered with CardLook
  Compute,   // so many small sets; answered with the CUresult
  Copy,      // so many small copies; answered with the CUresult
  Leave,     // not answered
};
struct Instruction {
  Order order = Order::Leave;
  Size amount = 0;
};

struct CardLook {
  cuvmm_sim_card card{};
  Size free = 0;
  Size total = 0;
  int devices = 0;
  std::array<unsigned char, 16> uuid{};
};

// A process of the card, which obeys.
class Member {
 public:
  explicit Member(const std::vector<std::string>& environment, const std::string& role = "member");

  pid_t pid() const { return child_.pid(); }
  Link& link() { return child_.link(); }

  CUresult allocate(Size bytes) { return ask<CUresult>(Order::Allocate, bytes); }
  CUresult free() { return ask<CUresult>(Order::Free, 0); }
  CUresult compute(Size count) { return ask<CUresult>(Order::Compute, count); }
  CUresult copy(Size count) { return ask<CUresult>(Order::Copy, count); }
  CardLook look() { return ask<CardLook>(Order::Look, 0); }
  void tell(Order order, Size amount) { link().send(Instruction{order, amount}); }

  // Ends it by SIGKILL and waits until it is gone.
  void kill();
  int leave();

 private:
  template <class Answer>
  Answer ask(Order order, Size amount) {
    tell(order, amount);
    return link().receive<Answer>();
  }

  Child child_;
};

// What the driver answers to cuInit in a process of its own.
CUresult start_answer(const std::vector<std::string>& environment);

// A card of a name that nobody else has, with 64 MiB unless said otherwise. Its file is removed
// afterwards.
class SharedCards : public ::testing::Test {
 public:
  static constexpr Size memory = 64 * MiB;

 protected:
  SharedCards();
  ~SharedCards() override;

  std::vector<std::string> environment(const std::vector<std::string>& more = {}) const;
  Member member() const { return Member{environment()}; }
  std::string file() const;
  const std::string& name() const { return name_; }

 private:
  std::string name_;
};

}  // namespace cuvmm::test
