// SPDX-License-Identifier: Apache-2.0
#include "card_world.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>

#include "support/memory.hpp"

namespace cuvmm::test {
namespace {

constexpr Size piece = 2 * MiB;

CardLook look_here() {
  CardLook look;
  if (sim()->read_card(0, &look.card) != 0) throw std::runtime_error("no card is shared");
  look.free = memory_info().free;
  look.total = memory_info().total;
  look.devices = device_count();
  CUuuid uuid{};
  GIVEN(driver().cuDeviceGetUuid(&uuid, device()));
  std::copy_n(uuid.bytes, look.uuid.size(), look.uuid.begin());
  return look;
}

CUresult allocate(std::vector<CUdeviceptr>& allocations, Size bytes) {
  CUdeviceptr address = 0;
  const CUresult answer = driver().cuMemAlloc(&address, bytes);
  if (answer == CUDA_SUCCESS) allocations.push_back(address);
  return answer;
}

CUresult free_newest(std::vector<CUdeviceptr>& allocations) {
  const CUdeviceptr address = allocations.back();
  allocations.pop_back();
  return driver().cuMemFree(address);
}

// Works on the member's own memory, so at least one allocation must exist.
CUresult work(CUdeviceptr memory, Order order, Size count) {
  static std::vector<std::byte> host(4 * KiB);
  for (Size i = 0; i < count; ++i) {
    const CUresult answer = order == Order::Compute
                                ? driver().cuMemsetD8(memory, 0, 4 * KiB)
                                : driver().cuMemcpyHtoD(memory, host.data(), host.size());
    if (answer != CUDA_SUCCESS) return answer;
  }
  return synchronize();
}

void obey(Link& link) {
  GIVEN(driver().cuInit(0));
  PrimaryContext context;
  std::vector<CUdeviceptr> allocations;
  link.signal();
  for (;;) {
    const auto [order, amount] = link.receive<Instruction>();
    if (order == Order::Leave) return;
    if (order == Order::Look) {
      link.send(look_here());
    } else if (order == Order::Allocate) {
      link.send(allocate(allocations, amount));
    } else if (order == Order::Free) {
      link.send(free_newest(allocations));
    } else {
      link.send(work(allocations.front(), order, amount));
    }
  }
}

}  // namespace

CHILD_ROLE(member) {
  obey(link);
}

CHILD_ROLE(starts) {
  link.send(driver().cuInit(0));
}

Member::Member(const std::vector<std::string>& environment, const std::string& role)
    : child_(role, {}, environment) {
  link().wait_for_signal();
}

void Member::kill() {
  ::kill(child_.pid(), SIGKILL);
  EXPECT_EQ(child_.wait(), 128 + SIGKILL);
}

int Member::leave() {
  tell(Order::Leave, 0);
  return child_.wait();
}

CUresult start_answer(const std::vector<std::string>& environment) {
  Child child{"starts", {}, environment};
  return child.link().receive<CUresult>();
}

SharedCards::SharedCards() {
  static int count = 0;
  name_ = "test-" + std::to_string(::getpid()) + "-" + std::to_string(++count);
}

SharedCards::~SharedCards() {
  ::unlink(file().c_str());
}

std::vector<std::string> SharedCards::environment(const std::vector<std::string>& more) const {
  std::vector<std::string> all = more;  // first: getenv takes the first of a name
  all.push_back("VMM_SIM_CARD=" + name_);
  all.emplace_back("VMM_SIM_MEMORY=64M");
  return all;
}

std::string SharedCards::file() const {
  return "/dev/shm/cuvmm-sim-card-" + std::to_string(::geteuid()) + "-" + name_;
}

}  // namespace cuvmm::test
