#include "runner/train/strategies/collectives.hpp"

#include "runner/lua/error.hpp"
#include "runner/train/strategies/script_groups.hpp"

namespace runner {

using lua::Arguments;
using lua::Class;
using lua::Object;
using lua::ScriptMistake;
using lua::Value;
using nlohmann::json;

namespace {

/// The ranks behind a handle `world` or of a group.
struct RanksHandle {
  ScriptHost* host;
  World* world;
  std::string name = "";              ///< of the group
  std::vector<int> ranks = {};        ///< of the world, in the group
  std::shared_ptr<World> owned = {};  ///< of a group: `world` points to it
};

/// A reduction, and what its result is divided by.
struct Operation {
  c10d::ReduceOp::RedOpType reduce = c10d::ReduceOp::SUM;
  int divisor = 1;
};

Operation operation_at(const Arguments& arguments, int index, const World& world, const torch::Tensor& reduced) {
  const auto name = arguments.text(index, "sum");
  if (name == "product") return {.reduce = c10d::ReduceOp::PRODUCT};
  if (name == "min") return {.reduce = c10d::ReduceOp::MIN};
  if (name == "max") return {.reduce = c10d::ReduceOp::MAX};
  if (name == "sum") return {};
  if (name != "mean")
    throw ScriptMistake(fmt::format(R"({}: argument {} must be "sum", "mean", "product", "min" or "max", not "{}")",
                                    arguments.function_name(), index, name));
  if (!reduced.is_floating_point())
    throw ScriptMistake(fmt::format("{}: a mean is one of floating-point numbers, and the tensor has the dtype {}",
                                    arguments.function_name(), c10::toString(reduced.scalar_type())));
  return {.divisor = world.size};
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
  const auto operation = operation_at(arguments, 2, world, tensor);
  ScriptWork started{.work = {}, .tensors = {tensor}, .divisor = operation.divisor};
  std::vector<at::Tensor> tensors{tensor};
  if (world.size > 1) started.work = world.group->allreduce(tensors, {operation.reduce});
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
  const auto operation = operation_at(arguments, 3, world, out);
  options.reduceOp = operation.reduce;
  ScriptWork started{.work = {}, .tensors = {out, in}, .divisor = operation.divisor};
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
using Kind = const Class& (*)();  ///< a class that may not be complete yet

RanksHandle& ranks_of(const Arguments& arguments, Kind kind) { return arguments.as<RanksHandle>(0, kind()); }

/// Adds the blocking and the asynchronous method of a collective.
void add(Class& made, Kind kind, const std::string& name, Start start) {
  made.method(name, [start, kind](const Arguments& arguments) {
    torch::NoGradGuard no_grad;
    start(arguments, *ranks_of(arguments, kind).world).wait();
    return arguments.value(1);
  });
  made.method(name + "_async", [start, kind](const Arguments& arguments) {
    torch::NoGradGuard no_grad;
    auto& handle = ranks_of(arguments, kind);
    auto work = Object::make(script_work_class(), start(arguments, *handle.world));
    handle.host->works.push_back(work);
    return Value(work);
  });
}

/// Adds what the world and groups have in common.
void add_common(Class& made, Kind kind) {
  made.property("rank", [](Object& object) { return Value(json(object.as<RanksHandle>().world->rank)); });
  made.property("size", [](Object& object) { return Value(json(object.as<RanksHandle>().world->size)); });
  add(made, kind, "all_reduce", all_reduce);
  add(made, kind, "all_gather", all_gather);
  add(made, kind, "reduce_scatter", reduce_scatter);
  add(made, kind, "broadcast", broadcast);
  add(made, kind, "shift", shift);
  made.method("barrier", 1, [kind](const Arguments& arguments) {
    named_barrier(*ranks_of(arguments, kind).world, arguments.text(1, ""));
  });
}

Value group(const Arguments& arguments) {
  arguments.at_most(2);
  auto& host = *ranks_of(arguments, script_world_class).host;
  const auto name = arguments.text(1);
  if (auto known = host.groups.find(name); known != host.groups.end() && !arguments.has(2)) return known->second;
  if (!host.may_make_groups)
    throw ScriptMistake(
        fmt::format("group: there is no group `{}`; make it in setup, on every rank: "
                    "world:group(\"{}\", {{0, 1}})",
                    name, name));
  if (host.groups.contains(name)) throw ScriptMistake(fmt::format("group: there is a group `{}` already", name));
  const json lists = arguments.has(2) ? arguments.table(2) : json();
  auto made = make_script_group(host.world, name, rank_lists(host.world, name, lists, host.local_size));
  return host.groups[name] = made.world
                                 ? Value(Object::make(script_group_class(), RanksHandle{.host = &host,
                                                                                        .world = made.world.get(),
                                                                                        .name = name,
                                                                                        .ranks = made.ranks,
                                                                                        .owned = made.world}))
                                 : Value();
}

}  // namespace

const Class& script_group_class() {
  static const Class kind = [] {
    Class made("group");
    made.property("name", [](Object& object) { return Value(json(object.as<RanksHandle>().name)); });
    made.property("ranks", [](Object& object) { return Value(json(object.as<RanksHandle>().ranks)); });
    add_common(made, script_group_class);
    return made;
  }();
  return kind;
}

const Class& script_world_class() {
  static const Class kind = [] {
    Class made("world");
    add_common(made, script_world_class);
    made.method("group", group);
    return made;
  }();
  return kind;
}

void ScriptWork::wait() {
  if (work && !ended) work->wait();
  if (!ended && divisor > 1) {
    torch::NoGradGuard no_grad;
    tensors.front().div_(divisor);
  }
  ended = true;
}

const Class& script_work_class() {
  static const Class kind = [] {
    Class made("work");
    made.method("wait", 0, [](const Arguments& arguments) { arguments.as<ScriptWork>(0, script_work_class()).wait(); });
    return made;
  }();
  return kind;
}

Value script_world(ScriptHost& host) {
  return Value(Object::make(script_world_class(), RanksHandle{.host = &host, .world = &host.world}));
}

}  // namespace runner
