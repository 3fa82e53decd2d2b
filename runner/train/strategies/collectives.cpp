#include "runner/train/strategies/collectives.hpp"

#include "runner/lua/error.hpp"

namespace runner {

using lua::Arguments;
using lua::Class;
using lua::Object;
using lua::ScriptMistake;
using lua::Value;
using nlohmann::json;

namespace {

struct WorldHandle {
  ScriptHost* host;
};

const Class& world_class();

ScriptHost& host_of(const Arguments& arguments) { return *arguments.as<WorldHandle>(0, world_class()).host; }

c10d::ReduceOp operation_at(const Arguments& arguments, int index) {
  auto name = arguments.text(index, "sum");
  if (name == "sum") return c10d::ReduceOp::SUM;
  if (name == "min") return c10d::ReduceOp::MIN;
  if (name == "max") return c10d::ReduceOp::MAX;
  throw ScriptMistake(fmt::format("{}: argument {} must be \"sum\", \"min\" or \"max\", not \"{}\"",
                                  arguments.function_name(), index, name));
}

torch::Tensor tensor_at(const Arguments& arguments, int index, bool written) {
  auto& tensor = arguments.as<ScriptTensor>(index, tensor_class());
  if (written) tensor.write([](torch::Tensor&) {});  // refuses if it must not change now
  return tensor.values;
}

void require_sizes(const Arguments& arguments, const torch::Tensor& out, int64_t out_numel, const torch::Tensor& in) {
  if (out.numel() != out_numel)
    throw ScriptMistake(
        fmt::format("{}: argument 1 must have {} elements, not {}", arguments.function_name(), out_numel, out.numel()));
  if (out.scalar_type() != in.scalar_type())
    throw ScriptMistake(fmt::format("{}: the tensors have dtypes {} and {}", arguments.function_name(),
                                    c10::toString(out.scalar_type()), c10::toString(in.scalar_type())));
}

ScriptWork all_reduce(const Arguments& arguments, World& world) {
  arguments.at_most(2);
  auto tensor = tensor_at(arguments, 1, true);
  auto operation = operation_at(arguments, 2);
  ScriptWork started{.work = {}, .tensors = {tensor}};
  std::vector<at::Tensor> tensors{tensor};
  if (world.size > 1) started.work = world.group->allreduce(tensors, {operation});
  return started;
}

ScriptWork all_gather(const Arguments& arguments, World& world) {
  arguments.at_most(2);
  auto out = tensor_at(arguments, 1, true), in = tensor_at(arguments, 2, false);
  require_sizes(arguments, out, in.numel() * world.size, in);
  ScriptWork started{{}, {out, in}};
  if (world.size > 1)
    started.work = world.group->_allgather_base(out, in);
  else
    out.copy_(in);
  return started;
}

ScriptWork reduce_scatter(const Arguments& arguments, World& world) {
  arguments.at_most(3);
  auto out = tensor_at(arguments, 1, true), in = tensor_at(arguments, 2, false);
  if (in.numel() % world.size != 0)
    throw ScriptMistake(fmt::format("{}: argument 2 has {} elements, not a multiple of {} ranks",
                                    arguments.function_name(), in.numel(), world.size));
  require_sizes(arguments, out, in.numel() / world.size, in);
  c10d::ReduceScatterOptions options;
  options.reduceOp = operation_at(arguments, 3);
  ScriptWork started{{}, {out, in}};
  if (world.size > 1)
    started.work = world.group->_reduce_scatter_base(out, in, options);
  else
    out.copy_(in);
  return started;
}

ScriptWork broadcast(const Arguments& arguments, World& world) {
  arguments.at_most(2);
  auto tensor = tensor_at(arguments, 1, true);
  int64_t root = arguments.integer(2, 0);
  if (root < 0 || root >= world.size)
    throw ScriptMistake(fmt::format("{}: the root is rank {} of {}", arguments.function_name(), root, world.size));
  ScriptWork started{{}, {tensor}};
  std::vector<at::Tensor> tensors{tensor};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  if (world.size > 1) started.work = world.group->broadcast(tensors, options);
  return started;
}

/// An all_to_all in which each rank sends to one other rank only, because not all backends have send and receive.
ScriptWork shift(const Arguments& arguments, World& world) {
  arguments.at_most(3);
  auto out = tensor_at(arguments, 1, true), in = tensor_at(arguments, 2, false);
  require_sizes(arguments, out, in.numel(), in);
  auto turn = [&](int64_t by) {
    return static_cast<size_t>(((world.rank + by) % world.size + world.size) % world.size);
  };
  int64_t by = arguments.integer(3) % world.size;
  ScriptWork started{{}, {out, in}};
  if (by == 0) {
    out.copy_(in);
    return started;
  }
  std::vector<int64_t> sent(static_cast<size_t>(world.size)), taken = sent;
  sent[turn(by)] = taken[turn(-by)] = in.numel();
  started.work = world.group->alltoall_base(out, in, taken, sent);
  return started;
}

using Start = ScriptWork (*)(const Arguments&, World&);

/// Adds the blocking and the asynchronous method of a collective.
void add(Class& made, const std::string& name, Start start) {
  made.method(name, [start](const Arguments& arguments) {
    torch::NoGradGuard no_grad;
    start(arguments, host_of(arguments).world).wait();
    return arguments.value(1);
  });
  made.method(name + "_async", [start](const Arguments& arguments) {
    torch::NoGradGuard no_grad;
    auto& host = host_of(arguments);
    auto work = Object::make(script_work_class(), start(arguments, host.world));
    host.works.push_back(work);
    return Value(work);
  });
}

const Class& world_class() {
  static const Class kind = [] {
    Class made("world");
    made.property("rank", [](Object& object) { return Value(json(object.as<WorldHandle>().host->world.rank)); });
    made.property("size", [](Object& object) { return Value(json(object.as<WorldHandle>().host->world.size)); });
    add(made, "all_reduce", all_reduce);
    add(made, "all_gather", all_gather);
    add(made, "reduce_scatter", reduce_scatter);
    add(made, "broadcast", broadcast);
    add(made, "shift", shift);
    made.method("barrier", [](const Arguments& arguments) {
      arguments.at_most(0);
      auto& world = host_of(arguments).world;
      if (world.size > 1) barrier(world.control);  // not every backend of devices has one
      return Value();
    });
    return made;
  }();
  return kind;
}

}  // namespace

void ScriptWork::wait() {
  if (work && !ended) work->wait();
  ended = true;
}

const Class& script_work_class() {
  static const Class kind = [] {
    Class made("work");
    made.method("wait", [](const Arguments& arguments) {
      arguments.at_most(0);
      arguments.as<ScriptWork>(0, script_work_class()).wait();
      return Value();
    });
    return made;
  }();
  return kind;
}

Value script_world(ScriptHost& host) { return Value(Object::make(world_class(), WorldHandle{&host})); }

}  // namespace runner
