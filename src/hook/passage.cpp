// SPDX-License-Identifier: Apache-2.0
#include "hook/passage.hpp"

#include "base/clock.hpp"
#include "trace/record_event.hpp"

namespace cuvmm::hook {

Passage::Passage(Call call, InAPause in_a_pause, bool is_recorded) : engine_(Engine::get()) {
  if (engine_ == nullptr) {
    way_ = Way::Natively;
    return;
  }
  if (HookBypass::is_active() || !engine_->is_on()) {
    way_ = Way::Unannounced;
    return;
  }
  // Calls that the driver makes from here on bypass the hooks.
  bypass_.emplace();
  if (in_a_pause == InAPause::Waits) {
    pass_.emplace(engine_->calls(), call);
    if (engine_->calls().is_abandoned()) way_ = Way::Ended;
  } else {
    pass_.emplace(engine_->forwarded(), call);
  }
  if (is_recorded && trace_is_on()) began_ = now_ns();
}

Passage::~Passage() = default;

}  // namespace cuvmm::hook
