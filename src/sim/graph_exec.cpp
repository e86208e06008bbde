// SPDX-License-Identifier: Apache-2.0
#include "sim/graph_exec.hpp"

#include "sim/capture_state.hpp"
#include "sim/context.hpp"
#include "sim/event.hpp"
#include "sim/graph_memory.hpp"
#include "sim/graph_work.hpp"
#include "sim/stream.hpp"

namespace cuvmm::sim {
namespace {

// The work of one launch in order, independent of later changes to the graph.
struct LaunchPlan {
  struct Step {
    std::shared_ptr<const Operation> operation;
    std::weak_ptr<Context> context;
  };
  std::vector<Step> steps;
  std::vector<std::shared_ptr<Event>> waited_for;
  std::vector<std::shared_ptr<Event>> recorded;
  std::vector<std::shared_ptr<GraphMemory>> freed;  // held until the launch is done
  Duration duration = Duration::Short;
};

std::shared_ptr<Event> event_of(const Node& node) {
  return std::get<std::shared_ptr<Event>>(node.work.operation->parameters);
}

// Memory is allocated and freed in the order of the steps, before they run. The program can observe
// only whether another launch is allowed.
CUresult plan_memory(const GraphExec& exec, LaunchPlan& plan) {
  const bool frees_itself = (exec.flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0;
  for (const Node* node : exec.steps) {
    if (node->type() != CU_GRAPH_NODE_TYPE_MEM_ALLOC) continue;
    const GraphMemory& memory = *node->work.memory;
    if (!is_allocated(memory)) continue;
    if (!frees_itself) return CUDA_ERROR_INVALID_VALUE;
    plan.freed.push_back(take_graph_memory(memory.address));
  }
  for (const Node* node : exec.steps) {
    if (node->type() == CU_GRAPH_NODE_TYPE_MEM_ALLOC) allocate_graph_memory(node->work.memory);
    if (node->type() == CU_GRAPH_NODE_TYPE_MEM_FREE) {
      plan.freed.push_back(take_graph_memory(node->work.memory->address));
    }
  }
  return CUDA_SUCCESS;
}

void plan_steps(const GraphExec& exec, LaunchPlan& plan) {
  for (const Node* node : exec.steps) {
    if (!node->enabled) continue;
    const Operation& operation = *node->work.operation;
    if (node->type() == CU_GRAPH_NODE_TYPE_WAIT_EVENT) plan.waited_for.push_back(event_of(*node));
    if (node->type() == CU_GRAPH_NODE_TYPE_EVENT_RECORD) plan.recorded.push_back(event_of(*node));
    if (!operation.run) continue;
    if (operation.duration == Duration::Long) plan.duration = Duration::Long;
    plan.steps.push_back({node->work.operation, node->work.context});
  }
}

void run_steps(const std::vector<LaunchPlan::Step>& steps, Context& launched_in) {
  for (const LaunchPlan::Step& step : steps) {
    const auto own = step.context.lock();
    run_operation(*step.operation, own != nullptr ? *own : launched_in);
  }
}

// A launch into a captured stream becomes a node that contains the whole graph.
CUresult capture_launch(GraphExec& exec, Stream& stream) {
  const auto capture = capture_of(stream);
  if (!capture->is_valid()) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (exec.graph->has_memory_nodes()) return CUDA_ERROR_NOT_SUPPORTED;
  capture->add(stream, child_work(exec.graph->clone()));
  return CUDA_SUCCESS;
}

}  // namespace

std::shared_ptr<GraphExec> GraphExec::create(const Graph& graph, cuuint64_t flags) {
  auto exec = std::make_shared<GraphExec>();
  exec->flags = flags;
  exec->graph = graph.clone();
  return exec->unfold(*exec->graph) ? exec : nullptr;
}

bool GraphExec::unfold(const Graph& from) {
  const auto order = from.order();
  if (!order) return false;
  for (Node* node : *order) {
    by_origin_[node->origin] = node;
    if (node->type() != CU_GRAPH_NODE_TYPE_GRAPH) {
      steps.push_back(node);
    } else if (!unfold(*node->work.child)) {
      return false;
    }
  }
  return true;
}

Node* GraphExec::find(CUgraphNode origin) const {
  const auto found = by_origin_.find(origin);
  return found == by_origin_.end() ? nullptr : found->second;
}

CUresult launch_graph(const std::shared_ptr<GraphExec>& exec,
                      const std::shared_ptr<Stream>& stream) {
  LaunchPlan plan;
  Point last;
  {
    const Holding holding{graph_lock()};
    if (capture_of(*stream) != nullptr) return capture_launch(*exec, *stream);
    const CUresult memory = plan_memory(*exec, plan);
    if (memory != CUDA_SUCCESS) return memory;
    plan_steps(*exec, plan);
    last = exec->last_launch;
  }
  order_after(*stream, last);
  for (const auto& event : plan.waited_for) {
    if (const auto recording = event->recording()) order_after(*stream, recording->point);
  }
  const std::vector<std::shared_ptr<Event>> recorded = std::move(plan.recorded);
  Operation launch{.type = CU_GRAPH_NODE_TYPE_GRAPH, .duration = plan.duration};
  launch.run = [exec, plan = std::move(plan)](Context& context) { run_steps(plan.steps, context); };
  const CUresult submitted = submit(stream, std::move(launch));
  if (submitted != CUDA_SUCCESS) return submitted;
  for (const auto& event : recorded) record_event(*event, stream);
  const Holding holding{graph_lock()};
  exec->last_launch = stream->queue->last();
  return CUDA_SUCCESS;
}

}  // namespace cuvmm::sim
