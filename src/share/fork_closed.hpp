// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cuvmm::share {

// A forked child that starts no other program keeps its parent's descriptors. Of these it must not:
// an importer that ends would seem to live on in its child, and connections would wait for a
// listener that is gone.
void close_in_forked_children(int descriptor);
// Before it is closed here.
void forget_for_forked_children(int descriptor);

}  // namespace cuvmm::share
