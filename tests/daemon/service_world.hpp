// SPDX-License-Identifier: Apache-2.0
// The node service as a process, and clients that send it scripted messages.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <unistd.h>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "base/fd.hpp"
#include "node/observer_message.hpp"

namespace cuvmm::test {

// A program that runs until the test waits for it or ends.
class RunningProgram {
 public:
  RunningProgram(const std::vector<std::string>& command, const std::vector<std::string>& more,
                 const std::string& output = "");
  ~RunningProgram();
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  bool has_ended() const;
  // Returns the exit status as a shell gives it. A program that runs longer than a minute and a
  // half is killed; the result is then -1.
  int wait();

 private:
  pid_t pid_ = -1;
};

// The test's own folder, a simulated card of 256 MiB, and a service on it.
class NodeService : public ::testing::Test {
 public:
  static constexpr Size memory = 256 * MiB;

  NodeService();
  ~NodeService() override;

  void start(const std::vector<std::string>& more = {},
             const std::vector<std::string>& before = {});
  // Starts the service on a card with further options, such as ",devices=2".
  void start_on(const std::string& more_of_the_card);
  void kill_service();
  // By SIGSTOP. A program that is stopped while it has the simulated card's books would hold up all
  // others in the driver.
  void stop(const RunningProgram& program) const;
  RunningProgram& service() { return *service_; }
  // Starts the service with these arguments and returns its exit status.
  int start_and_wait(const std::vector<std::string>& arguments, std::string* said = nullptr);

  std::string socket() const { return folder_ + "/d.sock"; }
  std::string card_file() const;  // the card's books
  std::string file(const std::string& name) const { return folder_ + "/" + name; }
  std::string sim() const { return "--sim=card=" + card_ + ",memory=256M" + more_; }
  // `cuvmm run` of take_turns on that card, with 50 ms between steps.
  std::vector<std::string> program(const std::string& name, int mib, int steps) const;
  // `cuvmm run` of a program of tests/programs on it.
  std::vector<std::string> test_program(const std::string& name,
                                        const std::vector<std::string>& arguments,
                                        const std::vector<std::string>& options = {}) const;
  // Variables with which a program finds the service; required() also makes it refuse to run
  // without.
  std::vector<std::string> automatic() const;
  std::vector<std::string> required() const;

  void write_file(const std::string& name, const std::string& text) const;
  std::string read_file(const std::string& name) const;

 private:
  std::string folder_;
  std::string card_;
  std::string more_;  // further options of the card
  std::optional<RunningProgram> service_;
};

// One connection to the service.
class RawClient {
 public:
  explicit RawClient(const std::string& socket);
  // Connects, greets, and then uses the service's device.
  static RawClient at(const NodeService& service, const std::string& name, Size guarantee = 0,
                      Size limit = unlimited, int priority = 0);

  bool is_open() const { return socket_.is_open(); }
  void say(const node::NodeMessage& message) { say(node::encode(message)); }
  void say(const node::ObserverMessage& message) { say(node::encode_observed(message)); }
  void say(const std::vector<std::byte>& packet);
  void close() { socket_.close(); }

  // Returns the next message of this kind and skips others; nothing if the connection ends or no
  // such message comes in time.
  template <class Kind>
  std::optional<Kind> hear(int milliseconds = 20000) {
    while (const auto packet = next_packet(milliseconds)) {
      std::optional<Kind> wanted;
      const auto look = [&](const auto& one) {
        if constexpr (std::is_same_v<std::remove_cvref_t<decltype(one)>, Kind>) wanted = one;
      };
      if (const auto said = node::decode(*packet); said.ok()) std::visit(look, *said);
      if (const auto said = node::decode_observed(*packet); said.ok()) std::visit(look, *said);
      if (wanted) return wanted;
    }
    return {};
  }
  // Returns the next message to an observer, and skips others like hear().
  std::optional<node::ObserverMessage> hear_observed(int milliseconds = 20000);
  // Whether the service has closed the connection.
  bool is_ended(int milliseconds = 20000);

  // Whether the lease was granted; refusal() has the reason if not.
  bool lease(Size bytes, bool at_once = true);
  const node::LeaseRefusal& refusal() const { return refusal_; }
  void give_back(Size bytes) { say(node::LeaseReturn{device_, bytes}); }
  const node::PlaceUuid& device() const { return device_; }
  // The last descriptor that came with a packet.
  const Fd& descriptor() const { return descriptor_; }
  void set_device(const node::PlaceUuid& device) { device_ = device; }

 private:
  std::optional<std::vector<std::byte>> next_packet(int milliseconds);

  Fd socket_;
  Fd descriptor_;
  node::PlaceUuid device_{};
  node::RequestId last_request_ = 0;
  node::LeaseRefusal refusal_;
};

// What the service tells an observer, in its order and up to StateEnd.
std::vector<node::ObserverMessage> look_at_state(const std::string& socket);
// The messages of one kind among these.
template <class Kind>
std::vector<Kind> look_at_all(const std::string& socket) {
  std::vector<Kind> found;
  for (const node::ObserverMessage& said : look_at_state(socket)) {
    if (const auto* const one = std::get_if<Kind>(&said)) found.push_back(*one);
  }
  return found;
}
// The device's leases as an observer sees them.
node::PlaceState look_at_device(const std::string& socket);
node::PlaceUuid device_of(const std::string& socket);

template <class Condition>
bool comes_true(Condition condition, int seconds = 20) {
  for (int i = 0; i < seconds * 50; ++i) {
    if (condition()) return true;
    ::usleep(20'000);
  }
  return false;
}

}  // namespace cuvmm::test
