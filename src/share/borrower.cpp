// SPDX-License-Identifier: Apache-2.0
#include "share/borrower.hpp"

#include <algorithm>
#include <mutex>

#include "base/log.hpp"

namespace cuvmm::share {
namespace {

Error refused(Refusal why) {
  const ErrorKind kind = why == Refusal::Freed || why == Refusal::Unknown
                             ? ErrorKind::NotMapped
                             : ErrorKind::InvalidArgument;
  return {.kind = kind, .doing = "open memory of another process", .subject = name_of(why)};
}

}  // namespace

// One conversation at a time. After a timeout, the late answer could be mistaken for the answer to
// a later request, so such a connection asks for nothing more; it only keeps the grants it already
// brought.
struct Borrower::Owner {
  Lock lock{LockOrder::IpcSession};  // guards what follows
  std::optional<Session> session;
  bool answers = true;

  Result<void> connect(const IpcHandle& handle, Deadline until) {
    if (session) return {};
    return in_any_folder(handle.socket_name(), [&](const std::string& path) -> Result<void> {
      session = TRY(Session::connect(path, handle.token, until));
      return {};
    });
  }
};

Borrower::~Borrower() {
  Holding holding{lock_};
  while (!all_.empty()) end(all_.begin(), holding);
}

std::shared_ptr<Borrower::Owner> Borrower::owner_of(const IpcHandle& handle) {
  const Holding holding{lock_};
  if (const auto known = owners_.find(handle.instance); known != owners_.end()) {
    return known->second;
  }
  forget_ended();
  return owners_[handle.instance] = std::make_shared<Owner>();
}

// Each has a socket open. Nobody asks an owner that only this map knows, so its lock is not needed.
void Borrower::forget_ended() {
  std::erase_if(owners_, [](const auto& known) {
    const Owner& owner = *known.second;
    return known.second.use_count() == 1 && owner.session && owner.session->has_ended();
  });
}

void Borrower::forget(const std::shared_ptr<Owner>& owner) {
  const Holding holding{lock_};
  std::erase_if(owners_, [&](const auto& known) { return known.second == owner; });
}

Result<CUdeviceptr> Borrower::open(const IpcHandle& handle, CUcontext context) {
  const Key key{handle.instance, handle.memory, context};
  {
    Holding holding{lock_};
    for (;;) {
      const auto found = all_.find(key);
      if (found == all_.end()) break;
      if (found->second.state == State::Open) {
        ++found->second.opens;
        return found->second.record->address();
      }
      changed_.wait(holding);
    }
    all_[key];
  }
  auto held = bring(handle, context);
  const Holding holding{lock_};
  changed_.notify_all();
  const auto opened = all_.find(key);
  if (!held.ok()) {
    all_.erase(opened);
    return held.error();
  }
  Opened& now = opened->second;
  now.held = std::move(*held);
  now.record = &records_.make();
  memory_.held().list_opened(*now.record, now.held.mapped->address(), now.held.mapped->size(),
                             context);
  now.state = State::Open;
  return now.record->address();
}

// Runs without the lock, since the other process may take its time.
Result<Borrower::Held> Borrower::bring(const IpcHandle& handle, CUcontext context) {
  const Deadline until = Deadline::after(patience_);
  const AccessSet who = memory_.contexts().access_to(context);
  if (who.is_none()) {
    return Error{.kind = ErrorKind::DriverFailed,
                 .driver_code = CUDA_ERROR_INVALID_CONTEXT,
                 .doing = "open memory of another process",
                 .subject = "its context has no device"};
  }
  Held held{.owner = owner_of(handle), .mapped = {}};
  const auto imported = fetch(handle, held, until);
  if (!imported.ok()) return imported.error();
  auto mapped = MappedGrant::map(driver_, *imported, who);
  if (!mapped.ok()) {
    const Error error = mapped.error();
    release(std::move(held));
    return error;
  }
  held.mapped = std::move(*mapped);
  return held;
}

// The program may have closed the connection with all other files, so a new one is tried too.
Result<Imported> Borrower::fetch(const IpcHandle& handle, Held& held, Deadline until) {
  Owner& owner = *held.owner;
  Holding holding{owner.lock};
  const bool was_connected = owner.session.has_value();
  auto imported = [&]() -> Result<Imported> {
    if (!owner.answers) return other_side_has_gone("open memory of another process");
    TRY(owner.connect(handle, until));
    const auto answer =
        owner.session->ask({.memory = handle.memory, .secret = handle.secret}, until);
    owner.answers = answer.ok();
    if (!answer.ok()) return answer.error();
    if (!answer->grant) return refused(answer->refusal);
    held.grant = answer->grant->id;
    auto fetched = Imported::fetch(driver_, *owner.session, *answer->grant, until);
    if (!fetched.ok()) owner.answers = owner.session->release(held.grant, until).ok();
    return fetched;
  }();
  const bool is_there = owner.session.has_value() && owner.answers;
  holding.unlock();
  if (is_there) return imported;
  forget(held.owner);
  if (!was_connected || imported.ok()) return imported;
  held.owner = owner_of(handle);
  return fetch(handle, held, until);
}

// Unmaps first: after the release the memory may belong to someone else.
void Borrower::release(Held held) {
  held.mapped.reset();
  Owner& owner = *held.owner;
  Holding holding{owner.lock};
  if (!owner.session || !owner.answers) return;
  const auto released = owner.session->release(held.grant, Deadline::after(patience_));
  owner.answers = released.ok();
  holding.unlock();
  if (released.ok()) return;
  forget(held.owner);
  if (!says_gone(released.error())) {
    CUVMM_LOG(Warning, "%s; its owner keeps counting it until every opened handle is closed",
              released.error().text().c_str());
  }
}

Borrower::All::iterator Borrower::find(CUdeviceptr address) {
  return std::find_if(all_.begin(), all_.end(), [&](const auto& opened) {
    return opened.second.state == State::Open && opened.second.record->address() == address;
  });
}

// Releases the lock while it calls the driver and the owner.
void Borrower::end(All::iterator opened, Holding& holding) {
  const Key key = opened->first;
  Opened& leaving = opened->second;
  leaving.state = State::Closing;
  memory_.held().unlist_opened(*leaving.record);
  records_.give_back(*leaving.record);
  Held held = std::move(leaving.held);
  holding.unlock();
  release(std::move(held));
  holding.lock();
  all_.erase(key);
  changed_.notify_all();
}

Result<void> Borrower::close(CUdeviceptr address) {
  Error unknown{.kind = ErrorKind::NotFound,
                .doing = "close memory of another process",
                .subject = "nothing that was opened begins there"};
  CUcontext context = nullptr;
  {
    const Holding holding{lock_};
    const auto opened = find(address);
    if (opened == all_.end()) return unknown;
    if (opened->second.opens > 1) {
      --opened->second.opens;
      return {};
    }
    context = opened->first.context;
  }
  TRY(memory_.work().wait_for(context));
  const RelaxedCapture relaxed{driver_};
  Holding holding{lock_};
  const auto opened = find(address);
  if (opened == all_.end()) return unknown;
  if (--opened->second.opens == 0) end(opened, holding);
  return {};
}

void Borrower::context_ended(CUcontext context) {
  Holding holding{lock_};
  for (;;) {
    const auto opened = std::find_if(all_.begin(), all_.end(), [&](const auto& one) {
      return one.first.context == context && one.second.state == State::Open;
    });
    if (opened == all_.end()) return;
    end(opened, holding);
  }
}

Result<void> Borrower::access_changed(CUcontext context) {
  const AccessSet who = memory_.contexts().access_to(context);
  const Holding holding{lock_};
  for (auto& [key, opened] : all_) {
    if (key.context != context || opened.state != State::Open) continue;
    TRY(opened.held.mapped->set_access(who));
  }
  return {};
}

}  // namespace cuvmm::share
