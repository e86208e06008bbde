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

// Commands to a member process, sent one at a time.
enum class Order : std::uint8_t {
  Allocate,  // bytes; answered with the CUresult
  Free,      // the newest allocation; answered with the CUresult
  Look,      // answered with CardLook
  Compute,   // `amount` small sets; answered with the CUresult
  Copy,      // `amount` small copies; answered with the CUresult
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

// A process that uses the card and executes the commands it is sent.
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

  // Kills the process with SIGKILL and waits until it has ended.
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

// The driver's answer to cuInit in a new process.
CUresult start_answer(const std::vector<std::string>& environment);

// A card with a unique name, and 64 MiB unless the test sets another size. The destructor removes
// its file.
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
