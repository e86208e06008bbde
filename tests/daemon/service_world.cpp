// SPDX-License-Identifier: Apache-2.0
#include "daemon/service_world.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "share/packet.hpp"
#include "support/thread_state.hpp"

namespace cuvmm::test {
namespace {

std::string cuvmmd() {
  return CUVMM_BIN "/cuvmmd";
}

}  // namespace

RunningProgram::RunningProgram(const std::vector<std::string>& command,
                               const std::vector<std::string>& more, const std::string& output) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ != 0) return;
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // if the test is killed; `cuvmm run` passes it on
  for (const std::string& variable : more) ::putenv(const_cast<char*>(variable.c_str()));
  if (!output.empty()) {
    const int file = ::open(output.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
    ::dup2(file, 1);
    ::dup2(file, 2);
  }
  ::execv(words[0], words.data());
  ::_exit(127);
}

RunningProgram::~RunningProgram() {
  if (pid_ < 0) return;
  signal(SIGCONT);
  signal(SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

// Signals the program together with the programs that it started.
void RunningProgram::signal(int number) const {
  if (::kill(-pid_, number) != 0) ::kill(pid_, number);
}

bool RunningProgram::has_ended() const {
  siginfo_t info{};
  const auto pid = static_cast<id_t>(pid_);
  return ::waitid(P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == pid_;
}

int RunningProgram::wait() {
  int status = 0;
  for (int i = 0; i < 180 * 50; ++i) {
    if (::waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = -1;
      return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
    ::usleep(20'000);
  }
  return -1;
}

NodeService::NodeService() {
  static int count = 0;
  const std::string own = std::to_string(::getpid()) + "-" + std::to_string(++count);
  card_ = "node-" + own;
  folder_ = (std::filesystem::temp_directory_path() / ("cuvmm-node-" + own)).string();
  std::filesystem::remove_all(folder_);  // of a process that had this number and was killed
  std::filesystem::create_directories(folder_);
  ::unlink(card_file().c_str());
}

NodeService::~NodeService() {
  service_.reset();
  if (HasFailure()) std::fputs(read_file("service.log").c_str(), stderr);
  std::error_code none;
  std::filesystem::remove_all(folder_, none);
  ::unlink(card_file().c_str());
}

std::string NodeService::card_file() const {
  return "/dev/shm/cuvmm-sim-card-" + std::to_string(::geteuid()) + "-" + card_;
}

void NodeService::start(const std::vector<std::string>& more,
                        const std::vector<std::string>& before) {
  std::vector<std::string> command = before;
  command.insert(command.end(), {cuvmmd(), "--socket", socket(), sim()});
  command.insert(command.end(), more.begin(), more.end());
  service_.emplace(command, std::vector<std::string>{}, file("service.log"));
  ASSERT_TRUE(comes_true([&] { return RawClient{socket()}.is_open(); }))
      << read_file("service.log");
}

void NodeService::start_on(const std::string& more_of_the_card) {
  more_ = more_of_the_card;
  start();
}

void NodeService::kill_service() {
  service_->signal(SIGKILL);
  service_->wait();
  service_.reset();
}

namespace {

bool stands_still(pid_t process) {
  for (const auto& thread :
       std::filesystem::directory_iterator{"/proc/" + std::to_string(process) + "/task"}) {
    if (thread_state(thread.path()) != 'T') return false;
  }
  return true;
}

// Byte 0 of the simulated card's file carries the lock on its books (sim/card/file.cpp).
bool are_books_free(const Fd& card) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_len = 1;
  return ::fcntl(card.number(), F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
}

}  // namespace

void NodeService::stop(const RunningProgram& program) const {
  const Fd card{::open(card_file().c_str(), O_RDWR | O_CLOEXEC)};
  ASSERT_TRUE(card.is_open());
  for (int tries = 0; tries < 1000; ++tries) {
    program.signal(SIGSTOP);
    for (int look = 0; look < 200; ++look) {
      if (stands_still(program.pid()) && are_books_free(card)) return;
      ::usleep(1'000);
    }
    program.signal(SIGCONT);
    ::usleep(1'000);
  }
  FAIL() << "it stands still only while it has the card's books";
}

int NodeService::start_and_wait(const std::vector<std::string>& arguments, std::string* said) {
  std::vector<std::string> command{cuvmmd(), "--socket", socket(), sim()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  RunningProgram program{command, {}, file("said")};
  const int status = program.wait();
  if (said != nullptr) *said = read_file("said");
  return status;
}

std::vector<std::string> NodeService::program(const std::string& name, int mib, int steps) const {
  return {std::string{CUVMM_BIN} + "/cuvmm",
          "run",
          "--quiet",
          sim(),
          "--name",
          name,
          "--",
          std::string{CUVMM_BIN} + "/take_turns",
          "--mib",
          std::to_string(mib),
          "--steps",
          std::to_string(steps),
          "--rest",
          "50"};
}

std::vector<std::string> NodeService::test_program(const std::string& name,
                                                   const std::vector<std::string>& arguments,
                                                   const std::vector<std::string>& options) const {
  std::vector<std::string> command{CUVMM_BIN "/cuvmm", "run", "--quiet", sim()};
  command.insert(command.end(), options.begin(), options.end());
  command.insert(command.end(), {"--", CUVMM_TEST_PROGRAMS "/cuvmm_program_" + name});
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

std::vector<std::string> NodeService::automatic() const {
  return {"VMM_NODE=auto", "VMM_NODE_SOCKET=" + socket()};
}
std::vector<std::string> NodeService::required() const {
  return {"VMM_NODE=require", "VMM_NODE_SOCKET=" + socket()};
}

void NodeService::write_file(const std::string& name, const std::string& text) const {
  std::ofstream{file(name)} << text;
}

std::string NodeService::read_file(const std::string& name) const {
  std::ifstream stream{file(name)};
  return {std::istreambuf_iterator<char>{stream}, {}};
}

RawClient::RawClient(const std::string& socket) {
  socket_ = Fd{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)};
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, socket.c_str(), sizeof address.sun_path - 1);
  if (::connect(socket_.number(), reinterpret_cast<const sockaddr*>(&address), sizeof address) !=
      0) {
    socket_.close();
  }
}

RawClient RawClient::at(const NodeService& service, const std::string& name, Size guarantee,
                        Size limit, int priority) {
  const node::PlaceUuid device = device_of(service.socket());
  RawClient client{service.socket()};
  client.device_ = device;
  client.say(node::Greeting{.name = name, .priority = priority, .places = 1});
  client.say(node::HeldAlready{.place = device, .guarantee = guarantee, .limit = limit});
  return client;
}

void RawClient::say(const std::vector<std::byte>& packet) {
  ::send(socket_.number(), packet.data(), packet.size(), MSG_NOSIGNAL);
}

std::optional<std::vector<std::byte>> RawClient::next_packet(int milliseconds) {
  pollfd seen{.fd = socket_.number(), .events = POLLIN, .revents = 0};
  if (::poll(&seen, 1, milliseconds) <= 0) return {};
  std::vector<std::byte> packet(node::longest_message);
  share::ReceivedBytes received = share::receive_bytes(socket_.number(), packet, 0);
  const ssize_t got = received.size;
  if (got <= 0) return {};
  if (!received.descriptors.empty()) descriptor_ = std::move(received.descriptors.front());
  packet.resize(static_cast<std::size_t>(got));
  return packet;
}

std::optional<node::ObserverMessage> RawClient::hear_observed(int milliseconds) {
  while (const auto packet = next_packet(milliseconds)) {
    if (auto said = node::decode_observed(*packet); said.ok()) return std::move(*said);
  }
  return {};
}

bool RawClient::is_ended(int milliseconds) {
  for (;;) {
    pollfd seen{.fd = socket_.number(), .events = POLLIN, .revents = 0};
    if (::poll(&seen, 1, milliseconds) <= 0) return false;
    std::array<std::byte, node::longest_message> packet{};
    if (::recv(socket_.number(), packet.data(), packet.size(), 0) <= 0) return true;
  }
}

bool RawClient::lease(Size bytes, bool at_once) {
  const node::RequestId request = ++last_request_;
  say(node::LeaseAsk{request, device_, bytes, at_once});
  while (const auto packet = next_packet(30'000)) {
    const auto said = node::decode(*packet);
    if (!said.ok()) continue;
    if (const auto* grant = std::get_if<node::LeaseGrant>(&*said)) {
      if (grant->request == request) return true;
    }
    if (const auto* refused = std::get_if<node::LeaseRefusal>(&*said)) {
      refusal_ = *refused;
      if (refused->request == request) return false;
    }
  }
  ADD_FAILURE() << "no answer to a request";
  return false;
}

std::vector<node::ObserverMessage> look_at_state(const std::string& socket) {
  RawClient observer{socket};
  observer.say(node::StateAsk{});
  std::vector<node::ObserverMessage> said;
  while (auto message = observer.hear_observed()) {
    if (std::holds_alternative<node::StateEnd>(*message)) return said;
    said.push_back(std::move(*message));
  }
  ADD_FAILURE() << "the service does not show its whole state";
  return said;
}

node::PlaceState look_at_device(const std::string& socket) {
  for (const node::PlaceState& place : look_at_all<node::PlaceState>(socket)) {
    if (place.kind == node::PlaceKind::Device) return place;
  }
  ADD_FAILURE() << "the service shows no device";
  return {};
}

node::PlaceUuid device_of(const std::string& socket) {
  return look_at_device(socket).place;
}

}  // namespace cuvmm::test
