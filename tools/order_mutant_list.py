# SPDX-License-Identifier: Apache-2.0
"""The mutants of order_mutants.py: each breaks one rule of docs/internals/stream_order.md.

Each is (name, number of the axiom, file, original text, replacement).
"""

OPERATIONS, MARKS = "src/stream/stream_operations.cpp", "src/stream/stream_marks.cpp"
CLOCK, WAITS = "src/stream/stream_clock.cpp", "src/stream/stream_waits.cpp"
EVENTS, TABLE = "src/stream/event_places.cpp", "src/stream/stream_table.cpp"
STATE, DOOR, HOOKS = "src/stream/stream_state.hpp", "src/hook/door.hpp", "src/hook/bodies/order.cpp"
LAYOUT, SITE = "src/alloc/arena/layout.cpp", "src/alloc/arena/allocation_span.cpp"
STATE, BUILD = "src/alloc/arena/arena_state.cpp", "src/alloc/arena/block_builder.cpp"
COPY, JOIN = "src/hook/named_copy.cpp", "src/hook/legacy_join.cpp"
POOL, FREE, MEMORY = "src/alloc/pool_order.hpp", "src/alloc/memory_free.cpp", "src/alloc/memory.cpp"

# After every such call, everything freed in any context counts as done.
PROVE_EVERYTHING = """    if constexpr (%s) {
      if (Serving* const all = engine_.serving(); all != nullptr && answer == CUDA_SUCCESS) {
        for (StreamState* one : all->clock.table().everything_of_all()) {
          all->clock.horizon_of(one->context).reached();
        }
      }
    }
    return answer;
  }

  // Which side"""
END_OF_CALL = "    return answer;\n  }\n\n  // Which side"
BLOCKING = "bool is_blocking() const { return kind == StreamKind::Blocking || kind == StreamKind::PerThread; }"
LEGACY_WAITS = "(later.kind == StreamKind::Legacy && earlier.is_blocking())"
BLOCKING_WAITS = "(earlier.kind == StreamKind::Legacy && later.is_blocking())"
SIDES = "is_legacy ? barrier.legacy_submitted() : barrier.blocking_submitted();"
NO_TICKET = "whole->ticket = since;"

MUTANTS = [
    # 1. The tickets of free ranges.
    ("a joined range keeps the earlier ticket", 1, LAYOUT, "return a.tick >= b.tick ? a : b;", "return a.tick <= b.tick ? a : b;"),
    ("a range joined with anybody's becomes anybody's", 1, LAYOUT, "if (a.is_for_anyone()) return b;\n  if (b", "if (a.is_for_anyone()) return a;\n  if (b"),
    ("a range joined with anybody's below it becomes anybody's", 1, LAYOUT, "if (b.is_for_anyone()) return a;\n  return", "if (b.is_for_anyone()) return b;\n  return"),
    ("ranges of two streams join, and one is forgotten", 1, LAYOUT, "return a.is_for_anyone() || b.is_for_anyone() || a.stream == b.stream;", "return true;"),
    ("the upper part of a split range loses its ticket", 1, LAYOUT, "above.ticket = range.ticket;", "above.ticket = {};"),
    ("a range that absorbs the next keeps its own ticket", 1, LAYOUT, "const FreeTicket since = later(range.ticket, next.ticket);", "const FreeTicket since = range.ticket;"),
    ("a freed block has no ticket", 1, LAYOUT, NO_TICKET, "whole->ticket = {};"),
    ("pending ranges settle at once", 1, LAYOUT, "if (order.is_free_for_anyone(range.ticket)) done", "done"),
    ("any stream may use any free range", 1, SITE, "if (since.is_for_anyone() || since.stream == stream) return true;", "return true;"),
    ("memory that moves need not be idle", 1, BUILD, "if (!is_idle(*range, state_.order) || !is_within(reach, *range)) continue;\n    const Stretch chunks", "if (!is_within(reach, *range)) continue;\n    const Stretch chunks"),
    # 2. What synchronization and queries prove.
    ("a free does not stand behind the legacy rule", 2, OPERATIONS, "answer_ = record_barrier();", "answer_ = CUDA_SUCCESS;"),
    ("an allocation behind others does not stand behind the legacy rule", 2, OPERATIONS, "if (!is_ahead_of_barrier_) return CUDA_SUCCESS;\n  before_", "return CUDA_SUCCESS;\n  before_"),
    ("the usual search does not say that memory is behind others", 2, STATE, "block->is_behind_others = is_pending;", ""),
    ("a site does not say that its memory is behind others", 2, BUILD, "return state_.order.is_across_barrier(range.ticket, stream);", "return static_cast<void>(range), false;"),
    ("an allocation counts as a barrier for later frees", 2, OPERATIONS, "if (kind == Kind::Allocation) return;", "if (kind == Kind::Allocation) { stream_.barrier_epoch.store(epoch_); return; }"),
    ("a query does not ask barriers", 2, HOOKS, "if (answer == CUDA_SUCCESS && !operations.are_done()) answer = CUDA_ERROR_NOT_READY;", ""),
    ("a synchronization waits for no barriers", 2, HOOKS, "if (answer == CUDA_SUCCESS && asks == Asks::ToWait) answer = operations.wait();", ""),
    ("the first barrier stands for the last", 2, OPERATIONS, "event_ = pin(*stream_, last->events.front());", "event_ = pin(*stream_, std::find_if(stream_->marks.begin(), stream_->marks.end(), [](const Mark& mark) { return mark.is_barrier; })->events.front());"),
    ("barriers are marks like others", 2, OPERATIONS, "is_barrier_ = true;", ""),
    ("an idle stream is proof despite its marks", 2, WAITS, "if (!state.marks.empty()) return;", ""),
    ("a query proves its stream whatever it answers", 2, HOOKS, "if (answer != CUDA_SUCCESS) return answer;\n  if (asks == Asks::Whether) {", "if (asks == Asks::Whether) {"),
    ("an event proves its place whatever it answers", 2, HOOKS, "const CUresult answer = forward(event);\n  if (answer != CUDA_SUCCESS) return answer;", "const CUresult answer = forward(event);"),
    ("a wait for one stream proves all of its context", 2, CLOCK, "if (state->kind == StreamKind::Legacy) {\n    table_.for_each_of(state->context, [&](StreamState& other) {\n      if (waits_for(*state, other)) horizon.add(other);", "{\n    table_.for_each_of(state->context, [&](StreamState& other) {\n      horizon.add(other);"),
    ("a wait for the legacy stream proves non-blocking ones", 2, CLOCK, "if (waits_for(*state, other)) horizon.add(other);", "horizon.add(other);"),
    ("a wait proves what is freed while it lasts", 2, TABLE, "found->second->advance(place.tick);", "found->second->advance(found->second->tick.load());"),
    ("marks are taken for complete", 2, MARKS, "return driver_.cuEventQuery(event) == CUDA_SUCCESS;\n    });\n    if (!happened) break;", "return driver_.cuEventQuery(event) != CUDA_ERROR_INVALID_VALUE;\n    });\n    if (!happened) break;"),
    ("a mark covers the next free too", 2, OPERATIONS, ".tick = is_exact ? ticket.tick : before_,", ".tick = ticket.tick + 1,"),
    ("a context is done when its legacy stream is", 2, WAITS, "if (stream->kind == StreamKind::NonBlocking && !is_idle(stream->handle)) return false;", "static_cast<void>(stream);"),
    ("a context is done though ended streams run", 2, WAITS, "if (ended_streams_run(context)) return false;", ""),
    # 3. Dependencies that cuvmm adds.
    ("late marks are followed", 3, MARKS, "{.tick = tick, .events = {event}, .is_exact = false}", "{.tick = tick, .events = {event}, .is_exact = true}"),
    ("ranges of several frees are followed", 3, SITE, "!range.is_merged && ", ""),
    ("following makes no stream wait", 3, CLOCK, "answer = driver_.cuStreamWaitEvent(to->handle, event, 0);", "answer = CUDA_SUCCESS;"),
    ("following waits on the host", 3, CLOCK, "answer = driver_.cuStreamWaitEvent(to->handle, event, 0);", "answer = driver_.cuEventSynchronize(event);"),
    ("any mark may be followed", 3, CLOCK, "[&](const Mark& mark) { return mark.is_exact && mark.tick == freed.tick; });", "[&](const Mark& mark) { return mark.tick >= freed.tick; });"),
    ("the newest mark is followed", 3, CLOCK, "if (mark.is_exact && mark.tick == freed.tick) event = mark.events.front();", "event = mark.events.front();"),
    ("a look records on the legacy stream", 12, CLOCK, "  poll(*state, PollEffort::Sparing);", "  poll(*state, PollEffort::Sparing);\n  Mark late{.tick = state->tick.load(), .events = {}};\n  if (record_on(*state, CU_STREAM_LEGACY, late)) add_mark(*state, std::move(late));"),
    # 4. Events.
    ("a record does not end what was known", 4, EVENTS, "change(group, [&](Group& known) { known.places.erase(event_); });", ""),
    ("answers count although the event was recorded again", 4, EVENTS, "return !recorded.place.empty() && look_up(event).serial == recorded.serial;", "return !recorded.place.empty();"),
    ("two records at once count", 4, EVENTS, "if (!was_alone || known", "if (known"),
    ("an event's place is read after its record", 4, HOOKS, "if (answer == CUDA_SUCCESS) clock->event_recorded(recording, name, std::move(place));", "place = clock->place_on(name);\n  for (FreeTicket& free : place) ++free.tick;\n  if (answer == CUDA_SUCCESS) clock->event_recorded(recording, name, std::move(place));"),
    ("event waits order everything on the event's streams", 4, CLOCK, "learn(*state, recorded.place);", "{ Place all = recorded.place; for (FreeTicket& t : all) t.tick += 1000; learn(*state, all); }"),
    ("an event that is waited for is known on every stream", 4, CLOCK, "learn(*state, recorded.place);", "{ learn(*state, recorded.place); for (StreamState* other : table_.of_context(state->context)) learn(*other, recorded.place); }"),
    ("records by graphs are not seen as such", 4, EVENTS, "group.recorded_unseen.insert(event);\n    group.places.erase(event);", ""),
    # 5. Calls that order nothing.
    ("value waits prove their context", 5, DOOR, END_OF_CALL, PROVE_EVERYTHING % 'info(call).name.starts_with("cuStreamWaitValue")'),
    ("value writes prove their context", 5, DOOR, END_OF_CALL, PROVE_EVERYTHING % 'info(call).name.starts_with("cuStreamWriteValue")'),
    ("host functions prove their context", 5, DOOR, END_OF_CALL, PROVE_EVERYTHING % 'info(call).name.starts_with("cuLaunchHostFunc")'),
    # 7. The legacy rule.
    ("the legacy rule orders before any operation", 7, CLOCK, "if (to == nullptr || !to->knows_others", "if (to != nullptr && waits_for(*to, *from)) return true;\n  if (to == nullptr || !to->knows_others"),
    ("non-blocking streams obey the legacy rule", 7, STATE, BLOCKING, "bool is_blocking() const { return kind != StreamKind::Legacy && kind != StreamKind::Everything; }"),
    ("per-thread streams do not obey the legacy rule", 7, STATE, BLOCKING, "bool is_blocking() const { return kind == StreamKind::Blocking; }"),
    ("blocking streams wait for each other", 7, STATE, LEGACY_WAITS, "(later.is_blocking() && earlier.is_blocking()) || " + LEGACY_WAITS),
    ("the legacy stream waits for every stream", 7, STATE, LEGACY_WAITS, "later.kind == StreamKind::Legacy"),
    ("every stream waits for the legacy stream", 7, STATE, BLOCKING_WAITS, "earlier.kind == StreamKind::Legacy"),
    ("the legacy stream's frees need no barrier", 7, OPERATIONS, "if (!program_.legacy.has_blocking_streams() && program_.sees_everything()) return false;", "return false;"),
    ("blocking streams' frees need no barrier", 7, OPERATIONS, "if (stream.kind == StreamKind::NonBlocking) return false;", "if (stream.kind != StreamKind::Legacy) return false;"),
    ("legacy work is not noted", 7, DOOR, SIDES, "if (!is_legacy) barrier.blocking_submitted();"),
    ("blocking work is not noted", 7, DOOR, SIDES, "if (is_legacy) barrier.legacy_submitted();"),
    ("all threads' own streams are one", 7, TABLE, "key.thread = name.is_legacy() ? 0 : PerThreadUse::this_thread();", "key.thread = 0;"),
    # 7. Several contexts.
    ("copies across contexts do not join the legacy streams", 7, COPY, "join_.add(owner->context());", "static_cast<void>(owner);"),
    ("the owners' later work does not wait for the copy", 7, JOIN, "if (count_ == 0 || answer != CUDA_SUCCESS) return answer;", "return answer;"),
    ("the copy does not wait for the owners' earlier work", 7, JOIN, "if (count_ == 0) return CUDA_SUCCESS;", "return CUDA_SUCCESS;"),
    ("copies on every stream join the legacy streams", 7, COPY, "traits_.is_submitted && stream_.is_legacy()", "traits_.is_submitted"),
    ("the legacy rule holds across contexts", 7, STATE, "if (later.context != earlier.context) return false;", ""),
    # 8. cuMemFree.
    ("a blocking free of pool memory discharges its points", 8, OPERATIONS, "if (!state->has_unfinished() && known_of(*state).empty()) return {};\n  return state->ticket();", "return {};"),
    ("a blocking free of pool memory forgets what its stream knows", 8, OPERATIONS, "if (!state->has_unfinished() && known_of(*state).empty()) return {};", "if (!state->has_unfinished()) return {};"),
    ("a blocking free of pool memory waits for the context", 8, FREE, "  // The driver waits for nothing here: the program is done with the memory.", "  around_.driver.cuCtxSynchronize_v2000();"),
    ("a blocking free waits for nothing", 8, FREE, "const auto waited = wait_for_work_of(owner);", "const Result<void> waited{};"),
    ("a blocking free waits for nothing new", 8, FREE, "if (around_.sees_everything() && context.covered_note().load() == note) return {};", "if (context.covered_note().load() != 0) return {};"),
    # 9. Reuse attributes.
    ("reuse along events cannot be forbidden", 9, POOL, "if (follows_events_.load(std::memory_order_relaxed)) return order_.is_before(freed, asker);\n    return is_free_for_anyone(freed);", "return order_.is_before(freed, asker);"),
    # 11. Streams and threads that have ended.
    ("ended threads' work is taken for done", 11, TABLE, "    end(*place->second);\n    place = by_key_.erase(place);\n    note_change();\n  }\n}\n\nvoid StreamTable::context_ends", "    place->second->advance(last_tick);\n    end(*place->second);\n    place = by_key_.erase(place);\n    note_change();\n  }\n}\n\nvoid StreamTable::context_ends"),
    ("ended streams' work is taken for done", 11, MARKS, "if (in_context.ok() && record_on(*state, handle, last)) {\n      add_mark(*state, std::move(last));\n    } else", "state->advance(last_tick);\n    if (false) {\n    } else"),
    ("a stream that gets an old handle is the old one", 11, TABLE, "end(*found->second);\n  by_key_.erase(found);", ""),
    ("the work of ended streams is left to nobody", 11, MARKS, "record_final_event(*state);\n  table_", "table_"),
    # 12. Waits that a native program would not see.
    ("every allocation stands behind the legacy rule", 12, MEMORY, "if (PoolMemory::is_behind_others(**made)) {", "{"),
    ("frees that stand behind the legacy rule wait on the host", 12, OPERATIONS, "CUresult Operation::record_barrier() {", "CUresult Operation::record_barrier() {\n  clock_.driver_.cuStreamSynchronize(stream_.handle);"),
    ("frees make all blocking streams wait", 12, OPERATIONS, "before_ = stream_.tick.load(std::memory_order_acquire);\n  if (is_ahead", "before_ = stream_.tick.load(std::memory_order_acquire);\n  if (Mark all; clock_.record_on(stream_, CU_STREAM_LEGACY, all)) clock_.retire(stream_, all);\n  if (is_ahead"),
    ("streams are asked whether they are idle while others submit", 12, WAITS, "void StreamClock::ask_whether_idle(StreamState& state) {", "void StreamClock::ask_whether_idle(StreamState& state) {\n  if (state.handle != nullptr) driver_.cuStreamSynchronize(state.handle);"),
    # 13. Synchronous calls.
    ("synchronous copies prove their context", 13, DOOR, END_OF_CALL, PROVE_EVERYTHING % "copies_or_sets"),
    # Frees of blocking memory.
    ("a stream-ordered free of blocking memory has no ticket", 1, FREE, "end_blocking(*found, ticket);", "end_blocking(*found, {});"),
    ("after a capture a blocking free waits for nothing", 8, FREE, "const CUresult answer = free_as_the_driver_does();\n    if (answer", "const CUresult answer = CUDA_SUCCESS;\n    if (answer"),
    # Events that cuvmm itself records and destroys.
    ("events of ended streams are destroyed", 12, TABLE, "  if (events.empty()) return true;\n", "  for (CUevent event : events) driver_.cuEventDestroy(event);\n  events.clear();\n  if (events.empty()) return true;\n"),
    ("a scheduled record on the legacy stream leaves other marks for later", 12, "src/sched/issuer_flight.cpp", "if (request.stream->kind == StreamKind::Legacy) close_batch();", ""),
]
