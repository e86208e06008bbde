/* SPDX-License-Identifier: Apache-2.0
 *
 * The C API of libcuvmm. There is one header per subject; this one includes them all. Compiling
 * against it needs no CUDA header: device addresses are uint64_t, and streams are the driver's
 * handles as void*.
 *
 * Every call that can fail returns a cuvmm_status and takes a cuvmm_error* as its last parameter,
 * which may be NULL. Out-parameters are written on success only. All functions are thread-safe.
 * Structs never grow: later versions use their reserved members, which callers must set to 0.
 * Objects belong to the process that created them; a forked child has none of them.
 *
 * docs/library.md explains how the library, the preload library and the driver relate.
 */
#ifndef CUVMM_CUVMM_H
#define CUVMM_CUVMM_H

#include "cuvmm/client.h"
#include "cuvmm/elastic_pool.h"
#include "cuvmm/engine.h"
#include "cuvmm/error.h"
#include "cuvmm/pause.h"
#include "cuvmm/resizable.h"
#include "cuvmm/share.h"
#include "cuvmm/shared_pool.h"
#include "cuvmm/version.h"

#endif /* CUVMM_CUVMM_H */
