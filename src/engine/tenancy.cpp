// SPDX-License-Identifier: Apache-2.0
#include "engine/tenancy.hpp"

#include <unistd.h>

#include "base/clock.hpp"
#include "base/log_rarely.hpp"
#include "base/not_cancelled.hpp"
#include "driver/current_context.hpp"
#include "engine/control.hpp"
#include "engine/control_service.hpp"
#include "engine/engine.hpp"
#include "engine/hook_bypass.hpp"
#include "node/job_group.hpp"
#include "node/service_socket.hpp"

namespace cuvmm {
namespace {

// Excludes other holders and the end of the process.
class Busy {
 public:
  Busy(std::atomic_flag& flag, const std::atomic<bool>& stays_out) : flag_(flag) {
    is_mine_ = !flag_.test_and_set();
    if (is_mine_ && stays_out.load()) {
      flag_.clear();
      is_mine_ = false;
    }
  }
  ~Busy() {
    if (is_mine_) flag_.clear();
  }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;
  bool may_go_on() const { return is_mine_; }

 private:
  std::atomic_flag& flag_;
  bool is_mine_ = false;
};

}  // namespace

Tenancy::Tenancy(Engine& engine, lease::LeaseSettings settings)
    : engine_(engine), leases_(std::move(settings), *this, &engine.time_lease()) {}

std::unique_ptr<Tenancy> Tenancy::of(Engine& engine, const Options& options) {
  if (options.mode != Mode::Vmm || options.node == NodeUse::Off) return nullptr;
  lease::LeaseSettings settings{
      .sockets = options.node_socket.empty() ? node::usual_service_sockets()
                                             : std::vector{options.node_socket},
      .is_required = options.node == NodeUse::Require,
      .name = options.name,
      .group = options.group.empty() ? node::group_of_environment() : options.group,
      .guarantee = options.guarantee,
      .weight = static_cast<std::uint32_t>(int{options.weight}),
      .priority = options.priority,
      .cap = static_cast<std::uint32_t>(int{options.cap}),
      .cache = options.cache};
  if (!settings.is_required && lease::sockets_that_may_be_trusted(settings.sockets).empty()) {
    return nullptr;
  }
  return std::unique_ptr<Tenancy>{new Tenancy{engine, std::move(settings)}};
}

DeviceMemory* Tenancy::device_with(const LeasedBudget& budget) const {
  Serving* const serving = engine_.serving();
  if (serving == nullptr) return nullptr;
  for (DeviceMemory* const device : serving->memory.devices().all()) {
    if (&device->budget() == &budget) return device;
  }
  return nullptr;
}

Size Tenancy::cached(const LeasedBudget& budget) {
  const DeviceMemory* const device = device_with(budget);
  if (device == nullptr || is_paused()) return 0;
  const MemoryCounters counters = engine_.serving()->memory.counters(device->ordinal());
  return counters.chunks.physical_free + counters.mapped_free;
}

void Tenancy::free_cache(LeasedBudget& budget, Size wanted) {
  const Busy busy{is_busy_, stays_out_};
  DeviceMemory* const device = device_with(budget);
  if (!busy.may_go_on() || device == nullptr || is_paused()) return;
  const EndingContexts::Use contexts{engine_.ending_contexts()};
  if (!contexts.is_granted()) return;
  const HookBypass bypass;
  const RelaxedCapture relaxed{engine_.driver()};
  const InContext in_context{engine_.driver(),
                             engine_.serving()->memory.contexts().any_on(device->ordinal())};
  device->store().reclaim(device->location(), wanted);
}

Size Tenancy::cold(const LeasedBudget& budget) {
  const DeviceMemory* const device = device_with(budget);
  const Control* const control = engine_.control();
  if (device == nullptr || control == nullptr || control->is_paused()) return 0;
  return control->cold_bytes(device->ordinal());
}

void Tenancy::move_out_cold(LeasedBudget& budget, Size wanted, Duration within) {
  {
    const Busy busy{is_busy_, stays_out_};
    DeviceMemory* const device = device_with(budget);
    if (!busy.may_go_on() || device == nullptr || engine_.control() == nullptr) return;
    const auto moved = engine_.control()->move_out_cold(*device, wanted, within);
    if (!moved.ok()) CUVMM_LOG_RARELY(Info, "%s", moved.error().text().c_str());
  }
  free_cache(budget, wanted);  // its old chunks are now cached
}

bool Tenancy::is_idle() {
  if (is_paused()) return true;
  const auto passes = engine_.calls().passes();
  if (!passes) return false;
  const bool is_quiet = *passes == std::exchange(last_passes_, *passes);
  const Busy busy{is_busy_, stays_out_};
  if (!is_quiet || !busy.may_go_on() || engine_.serving() == nullptr) return false;
  const HookBypass bypass;
  const RelaxedCapture relaxed{engine_.driver()};
  return engine_.serving()->memory.clock().wait_for_everything(0);
}

Result<void> Tenancy::pause(Duration within, const share::Fellows& fellows,
                            const std::function<void()>& has_released) {
  const Busy busy{is_busy_, stays_out_};
  if (!busy.may_go_on() || engine_.control() == nullptr) {
    return Error::invalid("pause", "the process is about to end");
  }
  TRY(engine_.control()->pause(within, Strict::No,
                               {fellows.still_working, fellows.may_move, has_released},
                               Control::Asker::Service));
  return {};
}

Result<void> Tenancy::resume(Come how) {
  TRY(engine_.control()->resume(how == Come::Partly ? Partly::Yes : Partly::No,
                                Control::Asker::Service));
  return {};
}

void Tenancy::return_ahead() {
  const Busy busy{is_busy_, stays_out_};
  if (busy.may_go_on() && engine_.control() != nullptr) engine_.control()->return_ahead();
}

void Tenancy::leave_again() {
  const Busy busy{is_busy_, stays_out_};
  if (busy.may_go_on() && engine_.control() != nullptr) engine_.control()->leave_again();
}

bool Tenancy::is_paused() const {
  return engine_.control() != nullptr && engine_.control()->is_paused();
}

bool Tenancy::is_paused_by_command() const {
  return engine_.control() != nullptr && engine_.control()->is_paused_by_command();
}

// While the process is off its devices, the driver itself blocks calls that a pause lets through.
bool Tenancy::has_held_calls() const {
  if (engine_.calls().has_waiting()) return true;
  return is_off_devices() && engine_.forwarded().find_caller_inside().has_value();
}

bool Tenancy::is_off_devices() const {
  const Control* const control = engine_.control();
  return control != nullptr && control->presence() != share::Presence::OnDevices;
}

// Unlike a command, the service acts on its own initiative. So it takes a process off its devices
// only if no other process may be using its memory, and if a command can bring the process back
// should the service be gone. Returns nullptr if it may.
const char* Tenancy::why_stays_on_devices() const {
  if (stays_out_.load()) return "the process is about to end";
  if (has_held_calls()) return "a call waits";
  if (engine_.control()->stayed_bytes() != 0) return "its pause left memory that others may use";
  if (!serve_commands(*engine_.control())) return "it has no socket for `cuvmm resume`";
  return nullptr;
}

share::ControlAnswer Tenancy::agree(const share::ControlRequest& request) {
  share::ControlAnswer refused;
  const char* why = engine_.control() == nullptr ? "the driver serves its memory" : nullptr;
  if (why == nullptr && request.what == share::ControlWhat::LeaveDevices && !is_off_devices()) {
    why = why_stays_on_devices();
  }
  if (why == nullptr) return engine_.control()->agree(request);
  refused.say(why);
  return refused;
}

void Tenancy::wait_outside(const std::function<void()>& wait) {
  const CallBarrier::OutsideBarrier stepped_out{engine_.calls()};
  wait();
}

void Tenancy::shut_down() {
  stays_out_.store(true);
  engine_.time_lease().shut_down();
  const std::uint64_t until = now_us() + 1'000'000;
  while (is_busy_.test_and_set() && now_us() < until) rest_us(50);
  is_busy_.clear();
}

}  // namespace cuvmm
