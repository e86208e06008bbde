// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cuvmm {

// Runs a step of an undo, a second time if it fails: an undo has no alternative.
template <class Step>
bool insist(Step step) {
  return step().ok() || step().ok();
}

}  // namespace cuvmm
