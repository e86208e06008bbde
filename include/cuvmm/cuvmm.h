/* SPDX-License-Identifier: Apache-2.0
 *
 * The C API of libcuvmm: a header a subject, all of them here. Nothing of CUDA is needed to compile
 * against it; device addresses are uint64_t, streams are the driver's handles as void*.
 *
 * Every call that can fail answers a cuvmm_status and takes a cuvmm_error* last, which may be NULL.
 * Out-parameters are written on success only. Everything may be called from any thread. Structs are
 * never enlarged: what they will need is reserved in them and must be 0 where a caller fills one.
 * Objects belong to the process that made them: a forked child has none of them.
 *
 * docs/library.md says how the library, the preload library and the driver stand to each other.
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
