// SPDX-License-Identifier: Apache-2.0
#include "share/lender.hpp"

#include <fcntl.h>
#include <pthread.h>

#include <atomic>
#include <map>
#include <mutex>

#include "base/at_exit.hpp"
#include "base/log.hpp"
#include "base/start_thread.hpp"
#include "base/without_signals.hpp"
#include "share/host.hpp"
#include "trace/futex.hpp"

namespace cuvmm::share {
namespace {

constexpr std::size_t most_importers = 1024;
constexpr Duration a_moment = std::chrono::seconds{1};

// At process exit no thread is joined; only the socket's file is removed.
struct SocketToRemove {
  const std::string path;
  const pid_t owner;
  const SocketToRemove* const before;  // kept, since the exit may be reading it
};
constinit std::atomic<const SocketToRemove*> socket_to_remove{nullptr};
void remove_socket_at_exit() {
  const SocketToRemove* const socket = socket_to_remove.load();
  if (socket != nullptr && socket->owner == ::getpid()) ::unlink(socket->path.c_str());
}
constinit AtExit removes_socket{&remove_socket_at_exit};

Token as_token(const Lending::Secret& secret) {
  return Token{secret};
}

}  // namespace

class Lender::LendServer {
 public:
  static Result<std::unique_ptr<LendServer>> open(Memory& memory, const ProgramLending& programs,
                                                  const AsOurs& as_ours);
  ~LendServer();

  IpcHandle handle_of(const Memory::Lent& lent) const {
    IpcHandle handle = identity_;
    handle.memory = lent.id;
    handle.secret = as_token(lent.secret);
    return handle;
  }
  std::uint64_t instance() const { return identity_.instance; }

 private:
  LendServer(Memory& memory, const ProgramLending& programs, const AsOurs& as_ours)
      : memory_(memory), programs_(programs), as_ours_(as_ours) {}
  Result<void> start();
  static void* run(void* server);
  Result<void> work();
  Result<bool> serve_one(Deadline until, int also);
  Result<void> catch_up_with_importers();
  void catch_up();
  bool wake() const;
  void answer(const HostEvent& event);
  void lend(const HostEvent& event);
  void give_back(Lending::Id id) {
    if (!ProgramLending::is_one(id)) memory_.lending().give_back(id);
  }

  Memory& memory_;
  const ProgramLending& programs_;
  const AsOurs& as_ours_;
  IpcHandle identity_;
  std::unique_ptr<Host> host_;
  std::map<GrantId, Lending::Id> lent_;
  std::atomic<bool> has_importers_{false};  // some of it is lent
  std::atomic<bool> stops_{false};
  OwnFd woken_;  // readable once something is written to `wakes_`
  OwnFd wakes_;
  FutexWord asked_{0};      // calls of catch_up()
  FutexWord caught_up_{0};  // those that have been answered
  pid_t process_ = 0;
  pthread_t thread_{};
  bool runs_ = false;
};

Result<std::unique_ptr<Lender::LendServer>> Lender::LendServer::open(Memory& memory,
                                                                     const ProgramLending& programs,
                                                                     const AsOurs& as_ours) {
  auto server = std::unique_ptr<LendServer>{new LendServer{memory, programs, as_ours}};
  server->process_ = ::getpid();
  server->identity_.kind = IpcHandle::ours;
  server->identity_.process = static_cast<std::uint32_t>(server->process_);
  const Token random = TRY(Token::make());
  std::memcpy(&server->identity_.instance, random.bytes.data(), sizeof server->identity_.instance);
  server->identity_.token = TRY(Token::make());
  const std::string folder = TRY(private_folder());
  remove_stale_sockets(TRY(PrivateFolder::open(folder)), IpcHandle::ipc_prefix);
  HostSettings settings;
  settings.path = folder + "/" + server->identity_.socket_name();
  settings.replace = ListeningSocket::Replace::Nothing;
  settings.token = server->identity_.token;
  settings.most_peers = most_importers;
  server->host_ = TRY(Host::open(settings));
  TRY(server->start());
  return server;
}

Result<void> Lender::LendServer::start() {
  constexpr const char* doing = "answer other processes";
  // A pipe rather than an eventfd: FileIdentity cannot tell eventfds apart.
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return system_error(doing);
  woken_ = OwnFd{Fd{ends[0]}};
  wakes_ = OwnFd{Fd{ends[1]}};
  const int refused = start_thread(&thread_, &LendServer::run, this);
  if (refused != 0) {
    errno = refused;
    return system_error(doing);
  }
  runs_ = true;
  memory_.lending().catch_up_by([this] { catch_up(); });
  removes_socket.ensure();
  socket_to_remove.store(new SocketToRemove{host_->path(), process_, socket_to_remove.load()});
  return {};
}

Lender::LendServer::~LendServer() {
  // A forked child has this object but not the thread.
  if (!runs_ || process_ != ::getpid()) return;
  memory_.lending().catch_up_by({});
  stops_.store(true);
  wake();
  ::pthread_join(thread_, nullptr);
}

void* Lender::LendServer::run(void* server) {
  auto* const self = static_cast<LendServer*>(server);
  self->as_ours_([self] {
    const auto worked = self->work();
    if (worked.ok()) return;
    self->has_importers_.store(false);
    CUVMM_LOG(Warning, "%s; IPC handles of this process can no longer be opened",
              worked.error().text().c_str());
  });
  return nullptr;
}

Result<void> Lender::LendServer::work() {
  while (!stops_.load()) {
    // Waits only for a moment at a time: if the program closes the pipe, nothing ends the wait,
    // since its number may belong to another file by then. Without its other end, it would end
    // every wait at once.
    const int also = wakes_.is_open() ? woken_.number() : -1;
    TRY(serve_one(Deadline::after(a_moment), also));
    if (asked_.load() != caught_up_.load()) TRY(catch_up_with_importers());
  }
  return {};
}

// Returns whether there was anything to do.
Result<bool> Lender::LendServer::serve_one(Deadline until, int also) {
  const auto event = TRY(host_->wait(until, also));
  if (event) answer(*event);
  has_importers_.store(!lent_.empty());
  return event.has_value();
}

bool Lender::LendServer::wake() const {
  const WithoutWriteSignals quiet;
  return ::write(wakes_.number(), "", 1) == 1 || errno == EAGAIN;
}

// Empties the pipe first: what is written to it later comes with another request.
Result<void> Lender::LendServer::catch_up_with_importers() {
  char written[64];
  while (::read(woken_.number(), written, sizeof written) == sizeof written) {
  }
  const std::uint32_t asked = asked_.load();
  while (TRY(serve_one(Deadline{}, -1))) {
  }
  caught_up_.store(asked);
  wake_all(caught_up_);
  return {};
}

// Has an effect in other threads only. An importer has closed its connection before anyone can see
// that it has ended, but this process's thread may not have run since.
void Lender::LendServer::catch_up() {
  if (!has_importers_.load() || process_ != ::getpid()) return;
  if (::pthread_equal(thread_, ::pthread_self()) != 0) return;
  const std::uint32_t mine = asked_.fetch_add(1) + 1;
  if (!wake()) return;
  const Deadline until = Deadline::after(a_moment);
  for (;;) {
    const std::uint32_t seen = caught_up_.load();
    if (static_cast<std::int32_t>(seen - mine) >= 0 || until.is_over()) return;
    wait_while(caught_up_, seen, a_moment);
  }
}

void Lender::LendServer::answer(const HostEvent& event) {
  if (event.what == HostEvent::What::Asked) lend(event);
  if (event.what != HostEvent::What::Released) return;
  const auto lent = lent_.find(event.grant);
  if (lent == lent_.end()) return;
  give_back(lent->second);
  lent_.erase(lent);
}

void Lender::LendServer::lend(const HostEvent& event) {
  const Lending::Id id = event.asked.memory;
  const bool is_programs = ProgramLending::is_one(id);
  const auto secret = is_programs ? programs_.secret_of(id) : memory_.lending().secret_of(id);
  if (!secret) return (void)host_->refuse(event.peer, Refusal::Freed);
  if (!same(as_token(*secret), event.asked.secret)) {
    return (void)host_->refuse(event.peer, Refusal::Unknown);
  }
  auto block = is_programs ? programs_.borrow(id) : memory_.lending().borrow(id);
  if (!block.ok()) return (void)host_->refuse(event.peer, Refusal::Freed);
  has_importers_.store(true);
  const auto granted = host_->grant(
      event.peer,
      {.chunks = std::move(block->chunks), .offset = block->offset, .size = block->size});
  if (granted.ok()) {
    lent_.emplace(*granted, id);
  } else {
    give_back(id);
  }
}

Lender::Lender(Memory& memory, ProgramChunks& chunks, AsOurs as_ours)
    : memory_(memory), programs_(chunks), as_ours_(std::move(as_ours)) {}
Lender::~Lender() = default;

Result<Lender::LendServer*> Lender::server() {
  const Holding holding{lock_};
  if (server_ == nullptr) {
    server_ = TRY(LendServer::open(memory_, programs_, as_ours_));
    instance_.store(server_->instance(), std::memory_order_release);
    CUVMM_LOG(Info, "IPC handles of this process can be opened by processes under cuvmm");
  }
  return server_.get();
}

Result<IpcHandle> Lender::lend(CUdeviceptr address) {
  const LendServer* const answering =
      TRY(server());  // first: memory that cannot be served must not be pinned
  const Token fresh = TRY(Token::make());
  const Memory::Lent lent = TRY(programs_.holds(address) ? programs_.lend(address, fresh.bytes)
                                                         : memory_.lend(address, fresh.bytes));
  return answering->handle_of(lent);
}

}  // namespace cuvmm::share
