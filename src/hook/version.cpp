// SPDX-License-Identifier: Apache-2.0
#include "base/version_words.hpp"

namespace cuvmm::hook {

[[gnu::used]] static const auto& version_words_in_this_file = preload_version_words;

}  // namespace cuvmm::hook
