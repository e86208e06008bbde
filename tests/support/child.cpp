// SPDX-License-Identifier: Apache-2.0
#include "support/child.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace cuvmm::test {
namespace {

constexpr char role_option[] = "--child-role=";
constexpr int link_number = 100;  // a child's end of the socket
constexpr int patience_milliseconds = 60'000;

std::map<std::string, ChildRole>& roles() {
  static auto* const all = new std::map<std::string, ChildRole>;
  return *all;
}

[[noreturn]] void fail(const char* doing) {
  throw std::runtime_error(std::string(doing) + ": " + std::strerror(errno));
}

void await_readable(int fd) {
  pollfd waited{.fd = fd, .events = POLLIN, .revents = 0};
  int ready = 0;
  do {
    ready = ::poll(&waited, 1, patience_milliseconds);
  } while (ready < 0 && errno == EINTR);
  if (ready == 0) throw std::runtime_error("the other process sent nothing in time");
  if (ready < 0) fail("poll");
}

struct SocketEnds {
  OwnedFd ours;
  OwnedFd theirs;
};

SocketEnds socket_pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) fail("socketpair");
  return {OwnedFd{ends[0]}, OwnedFd{ends[1]}};
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  all.reserve(texts.size() + 1);
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

std::vector<std::string> environment_with(const std::vector<std::string>& added) {
  std::vector<std::string> all = added;  // first: getenv takes the first of a name
  for (char** entry = environ; *entry != nullptr; ++entry) all.emplace_back(*entry);
  return all;
}

// This program, behind the emulator that it needs if it was built for another processor.
std::vector<std::string> this_program() {
  std::vector<std::string> words;
  if (const char* const emulator = std::getenv("CUVMM_TEST_EMULATOR")) {
    std::istringstream text{emulator};
    for (std::string word; text >> word;) words.push_back(word);
  }
  words.push_back(std::filesystem::read_symlink("/proc/self/exe").string());
  return words;
}

int status_of(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

}  // namespace

void OwnedFd::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

void Link::send_bytes(const void* bytes, std::size_t size) {
  const auto* at = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t sent = ::send(socket_.get(), at, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) fail("send to the other process");
    at += sent;
    size -= static_cast<std::size_t>(sent);
  }
}

void Link::receive_bytes(void* bytes, std::size_t size) {
  auto* at = static_cast<char*>(bytes);
  while (size > 0) {
    await_readable(socket_.get());
    const ssize_t got = ::recv(socket_.get(), at, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("receive from the other process");
    if (got == 0) throw std::runtime_error("the other process has gone");
    at += got;
    size -= static_cast<std::size_t>(got);
  }
}

void Link::send_fd(int fd) {
  char byte = 'f';
  iovec data{.iov_base = &byte, .iov_len = 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  if (::sendmsg(socket_.get(), &message, MSG_NOSIGNAL) != 1) fail("send a file descriptor");
}

OwnedFd Link::receive_fd() {
  await_readable(socket_.get());
  char byte = 0;
  iovec data{.iov_base = &byte, .iov_len = 1};
  int fd = -1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC) != 1) fail("receive a file descriptor");
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) {
    throw std::runtime_error("the other process sent no file descriptor");
  }
  std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  return OwnedFd{fd};
}

Child::Child(const std::string& role, const std::vector<std::string>& arguments,
             const std::vector<std::string>& environment)
    : link_(OwnedFd{}) {
  SocketEnds ends = socket_pair();
  link_ = Link{std::move(ends.ours)};
  std::vector<std::string> words = this_program();
  words.push_back(role_option + role);
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<std::string> variables = environment_with(environment);

  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends.theirs.get(), link_number);
  const int refused = ::posix_spawn(&pid_, words.front().c_str(), &actions, nullptr,
                                    pointers(words).data(), pointers(variables).data());
  ::posix_spawn_file_actions_destroy(&actions);
  if (refused != 0) {
    pid_ = -1;
    throw std::runtime_error(std::string("start a child: ") + std::strerror(refused));
  }
}

Child::~Child() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

int Child::wait(std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (std::chrono::steady_clock::now() < deadline) {
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = -1;
      return status_of(status);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  return timed_out;
}

int run_child(const std::string& role, const std::vector<std::string>& arguments,
              const std::vector<std::string>& environment) {
  Child child{role, arguments, environment};
  return child.wait();
}

bool register_child_role(const char* name, ChildRole role) {
  return roles().emplace(name, role).second;
}

std::optional<int> play_child_role(int argc, char** argv) {
  if (argc < 2 || std::strncmp(argv[1], role_option, sizeof role_option - 1) != 0) {
    return std::nullopt;
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a child does not outlive its test
  ::fcntl(link_number, F_SETFD, FD_CLOEXEC);
  const auto role = roles().find(argv[1] + sizeof role_option - 1);
  if (role == roles().end()) {
    std::fprintf(stderr, "cuvmm tests: no such child role: %s\n", argv[1]);
    return 2;
  }
  Link link{OwnedFd{link_number}};
  try {
    role->second(link, ChildArguments(argv + 2, argv + argc));
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "child %s: %s\n", role->first.c_str(), failure.what());
    return 1;
  }
  // Expectations outside a test count as GoogleTest's ad hoc test.
  return ::testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed() ? 1 : 0;
}

}  // namespace cuvmm::test
