// SPDX-License-Identifier: Apache-2.0
// Work in a second process. A driver's state does not survive fork, so the child is the test
// program again, freshly started, with the name of its role:
//
//   CHILD_ROLE(reads_the_word) {
//     PrimaryContext context;
//     ...
//     EXPECT_EQ(link.receive<int>(), 7);       // a failed expectation fails the child
//   }
//   TEST(...) {
//     Child child{"reads_the_word"};
//     child.link().send(7);
//     EXPECT_EQ(child.wait(), 0);
//   }
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace cuvmm::test {

// An owned file descriptor.
class OwnedFd {
 public:
  explicit OwnedFd(int fd = -1) : fd_(fd) {}
  ~OwnedFd() { close(); }
  OwnedFd(OwnedFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OwnedFd& operator=(OwnedFd&& other) noexcept {
    close();
    fd_ = std::exchange(other.fd_, -1);
    return *this;
  }
  int get() const { return fd_; }
  void close();

 private:
  int fd_ = -1;
};

// One end of the socket between the two processes. Waits at most `patience` for the other side;
// after that it throws, which fails the test or the child.
class Link {
 public:
  explicit Link(OwnedFd socket) : socket_(std::move(socket)) {}

  template <class T>
  void send(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    send_bytes(&value, sizeof value);
  }
  template <class T>
  T receive() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    receive_bytes(&value, sizeof value);
    return value;
  }
  void send_fd(int fd);
  OwnedFd receive_fd();

  // Announces a step that the other side waits for.
  void signal() { send('!'); }
  void wait_for_signal() { (void)receive<char>(); }

  int fd() const { return socket_.get(); }
  void close() { socket_.close(); }

 private:
  void send_bytes(const void* bytes, std::size_t size);
  void receive_bytes(void* bytes, std::size_t size);
  OwnedFd socket_;
};

class Child {
 public:
  explicit Child(const std::string& role, const std::vector<std::string>& arguments = {},
                 const std::vector<std::string>& environment = {});  // "NAME=value", added
  ~Child();                                                          // kills it if it still runs
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  Link& link() { return link_; }
  pid_t pid() const { return pid_; }

  // The exit status, 128 + the signal that ended it, or timed_out.
  int wait(std::chrono::milliseconds patience = std::chrono::seconds{60});
  static constexpr int timed_out = -1;

 private:
  Link link_;
  pid_t pid_ = -1;
};

// Starts a role, waits for it and returns its exit status.
int run_child(const std::string& role, const std::vector<std::string>& arguments = {},
              const std::vector<std::string>& environment = {});

// Lives until the process ends and is never destroyed, like the remains of a crash. Stays
// reachable, so that leak checkers do not report it.
template <class T, class... Arguments>
T& left_behind(Arguments&&... arguments) {
  static auto* const all = new std::vector<T*>;
  return *all->emplace_back(new T(std::forward<Arguments>(arguments)...));
}

using ChildArguments = std::vector<std::string>;
using ChildRole = void (*)(Link& link, const ChildArguments& arguments);
bool register_child_role(const char* name, ChildRole role);

// Call in main after InitGoogleTest: plays the role that this process was started for and returns
// its exit status; returns nothing in a test program.
std::optional<int> play_child_role(int argc, char** argv);

#define CHILD_ROLE(name)                                                         \
  static void child_role_##name(::cuvmm::test::Link& link,                       \
                                const ::cuvmm::test::ChildArguments& arguments); \
  [[maybe_unused]] static const bool child_role_##name##_registered =            \
      ::cuvmm::test::register_child_role(#name, child_role_##name);              \
  static void child_role_##name([[maybe_unused]] ::cuvmm::test::Link& link,      \
                                [[maybe_unused]] const ::cuvmm::test::ChildArguments& arguments)

}  // namespace cuvmm::test
