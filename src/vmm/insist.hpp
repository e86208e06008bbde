// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cuvmm {

// Runs a step of an undo, twice if it fails: there is no other way out.
template <class Step>
bool insist(Step step) {
  return step().ok() || step().ok();
}

}  // namespace cuvmm
