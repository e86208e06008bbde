// SPDX-License-Identifier: Apache-2.0
#include "resize/deferred_copy.hpp"

namespace cuvmm {

const char* words_of(WhyRun why) {
  switch (why) {
#define CUVMM_WHY_RUN(name, number, key, words) \
  case WhyRun::name:                            \
    return words;
#include "base/why_run.def"
#undef CUVMM_WHY_RUN
  }
  return nullptr;
}

}  // namespace cuvmm
