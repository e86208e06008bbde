// SPDX-License-Identifier: Apache-2.0
// Programs that do something only when a test says so, and a service that takes them off their
// devices.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

#include <fstream>
#include <string>
#include <vector>

#include "daemon/service_world.hpp"

namespace cuvmm::test {

// on_demand, which holds memory that is served and an array of 16 MiB that is not.
class ProgramOnDemand {
 public:
  // `before`: the words before its command.
  ProgramOnDemand(const NodeService& service, const std::string& name, int mib,
                  const std::vector<std::string>& variables = {},
                  std::vector<std::string> before = {})
      : service_(service), name_(name) {
    const std::string path = service.file(name + ".pipe");
    ::mkfifo(path.c_str(), 0600);
    ::chmod(path.c_str(), 0666);
    pipe_ = Fd{::open(path.c_str(), O_RDWR | O_CLOEXEC)};
    std::vector<std::string> all = service.automatic();
    all.insert(all.end(), variables.begin(), variables.end());
    const auto command =
        service.test_program("on_demand", {std::to_string(mib), path}, {"--name", name});
    before.insert(before.end(), command.begin(), command.end());
    ::unlink(service.file(name).c_str());  // of an earlier program of that name
    running_.emplace(before, all, service.file(name));
  }
  bool has_begun() const { return says("holds"); }
  void tell(const std::string& line) const {
    const std::string words = line + "\n";
    EXPECT_EQ(::write(pipe_.number(), words.data(), words.size()), ssize_t(words.size()));
  }
  std::string said() const { return service_.read_file(name_); }
  bool says(const std::string& words) const {
    return comes_true([&] { return said().find(words) != std::string::npos; });
  }
  void signal(int number) const { running_->signal(number); }
  const RunningProgram& running() const { return *running_; }
  int wait() { return running_->wait(); }
  // All that it ever wrote was there.
  void expect_all_right() {
    tell("check");
    pipe_.close();
    EXPECT_EQ(running_->wait(), 0) << said();
    EXPECT_NE(said().find("ended well"), std::string::npos) << said();
  }

 private:
  const NodeService& service_;
  const std::string name_;
  Fd pipe_;
  std::optional<RunningProgram> running_;
};

// On a card of 256 MiB.
class DeepPausesOfANode : public NodeService {
 public:
  // The variables are for the service's helpers.
  void start_with(const std::vector<std::string>& variables,
                  const std::vector<std::string>& more = {"--deep-pause-after", "200ms"}) {
    std::vector<std::string> before;
    if (!variables.empty()) before.emplace_back("/usr/bin/env");
    before.insert(before.end(), variables.begin(), variables.end());
    start(more, before);
  }
  // A program with 160 MiB, which a scripted client makes it give up.
  void pause_a_program() {
    program_.emplace(*this, "idle", 160);
    ASSERT_TRUE(program_->has_begun()) << program_->said();
    ASSERT_TRUE(comes_true([&] { return is_idle("idle"); }));
    take_memory();
  }
  // The scripted client leases more than an idle program leaves. A pause that takes too long on a
  // busy machine refuses it at first.
  void take_memory() {
    EXPECT_TRUE(comes_true([&] {
      other_.emplace(RawClient::at(*this, "other"));
      return other_->lease(200 * MiB, false);
    }));
  }
  void pause_a_program_deeply() {
    pause_a_program();
    ASSERT_TRUE(comes_to("idle", node::DeviceStay::Off));
  }
  ProgramOnDemand& program() { return *program_; }
  // The scripted client has gone, so the program's next call brings it back.
  void give_back() { other_.reset(); }
  void expect_all_right() {
    give_back();
    program().expect_all_right();
    EXPECT_TRUE(comes_true([&] { return look_at_device(socket()).leased == 0; }));
  }
  void expect_that_its_death_leaves_nothing() {
    program().signal(SIGKILL);
    program().wait();
    give_back();
    EXPECT_TRUE(comes_true([&] { return look_at_device(socket()).leased == 0; }));
    RunningProgram all{NodeService::program("all", 224, 5), required(), file("all")};
    EXPECT_EQ(all.wait(), 0) << read_file("all");
  }

  bool logs(const std::string& words) const {
    return comes_true([&] { return read_file("service.log").find(words) != std::string::npos; });
  }
  std::optional<node::ClientState> look_at(const std::string& name) const {
    for (const node::ClientState& client : look_at_all<node::ClientState>(socket())) {
      if (client.name == name) return client;
    }
    return {};
  }
  bool is_idle(const std::string& name) const {
    const auto client = look_at(name);
    return client && client->is_idle;
  }
  std::optional<node::PauseState> look_at_pause(const std::string& name) const {
    const auto client = look_at(name);
    for (const node::PauseState& pause : look_at_all<node::PauseState>(socket())) {
      if (client && pause.client == client->client) return pause;
    }
    return {};
  }
  bool comes_to(const std::string& name, node::DeviceStay stay) const {
    return comes_true([&] {
      const auto seen = look_at_pause(name);
      return seen && seen->stay == stay;
    });
  }
  // The process of the service's helper at work, once there is one.
  pid_t helper() {
    const std::string service_number = std::to_string(service().pid());
    const std::string children =
        "/proc/" + service_number + "/task/" + service_number + "/children";
    pid_t found = 0;
    EXPECT_TRUE(comes_true([&] {
      std::ifstream list{children};
      while (list >> found) {
        std::ifstream words{"/proc/" + std::to_string(found) + "/cmdline"};
        const std::string command{std::istreambuf_iterator<char>{words}, {}};
        // The list also has helpers that have ended and were not reaped yet.
        if (command.find("--deep-pause-helper") != std::string::npos) return true;
      }
      return false;
    }));
    return found;
  }

 private:
  std::optional<ProgramOnDemand> program_;
  std::optional<RawClient> other_;
};

}  // namespace cuvmm::test
