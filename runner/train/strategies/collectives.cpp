#include "runner/train/strategies/collectives.hpp"

#include <fmt/ranges.h>

#include <algorithm>

#include "runner/base/hash.hpp"
#include "runner/base/text.hpp"
#include "runner/lua/error.hpp"
#include "runner/train/hooks/exchange.hpp"
#include "strategies/collective/world.hpp"

namespace runner {

using lua::Arguments, lua::Class, lua::Object, lua::ScriptMistake, lua::Value;
using nlohmann::json;

namespace {

constexpr size_t name_bytes = 200;

/// At most name_bytes: of a longer text the beginning, and a hash of all of it.
std::string shortened(const std::string& text) {
  if (text.size() <= name_bytes) return text;
  const auto end = fmt::format("... (hash {:016x})", fnv1a(text));
  return text.substr(0, name_bytes - end.size()) + end;
}

/// "rank 0 in `a`, ranks 1, 2 in `b`".
std::string describe_texts(const std::vector<std::string>& texts, const std::string& unnamed) {
  std::map<std::string, std::vector<int>> ranks;
  for (size_t rank = 0; rank < texts.size(); ++rank) ranks[texts[rank]].push_back(static_cast<int>(rank));
  std::vector<std::string> parts;
  for (const auto& [text, of] : ranks)
    parts.push_back(fmt::format("{} in {}", describe_ranks(of), text.empty() ? unnamed : "`" + text + "`"));
  return join(parts, ", ");
}

bool differ(const std::vector<std::string>& texts) {
  return std::ranges::any_of(texts, [&](const auto& text) { return text != texts.front(); });
}

/// Waits for all ranks. They compare the names that they give: if these differ, throws lua::ScriptMistake on all ranks
/// with the name of each one. `name` may be empty; messages show 200 bytes of it.
void named_barrier(World& world, const std::string& name) {
  if (world.size == 1) return;
  // Ranks that are in another collective get an error that says "barrier". Not every backend of devices has one.
  if (world.control != world.group || world.device.is_cpu()) barrier(world.control);
  const auto texts = gather_texts(world, shortened(name), name_bytes);
  if (differ(texts))
    throw ScriptMistake("barrier: ranks wait in different barriers: " +
                        describe_texts(texts, "a barrier without a name"));
}

/// The ranks of each group `name` that a script asks for. `given`: a list of ranks, or of such lists; null: the ranks of each node, if the
/// name is "node". Throws lua::ScriptMistake if it is wrong.
std::vector<std::vector<int>> rank_lists(const World& world, const std::string& name, const json& given,
                                         int local_size) {
  const auto wrong = [&](const std::string& what) { return ScriptMistake(fmt::format("group: `{}`: {}", name, what)); };
  std::vector<std::vector<int>> lists;
  if (name.empty()) throw ScriptMistake("group: the name must not be empty");
  if (name == "node") {
    if (!given.is_null()) throw wrong("this name is for the ranks of a node: call it without a list of ranks");
    for (int first = 0; first < world.size; first += local_size) {
      auto& list = lists.emplace_back();
      for (int rank = first; rank < std::min(first + local_size, world.size); ++rank) list.push_back(rank);
    }
    return lists;
  }
  if (given.is_null()) throw wrong("give the ranks, such as {0, 1}; only \"node\" needs none");
  if (!given.is_array() || given.empty()) throw wrong("the ranks must be a list such as {0, 1}, not " + given.dump());
  std::vector<bool> taken(static_cast<size_t>(world.size));
  for (const auto& ranks : given.front().is_array() ? given : json::array({given})) {
    auto& list = lists.emplace_back();
    if (!ranks.is_array() || ranks.empty()) throw wrong("a group is a list of ranks, not " + ranks.dump());
    for (const auto& rank : ranks) {
      if (!rank.is_number_integer() || rank < 0 || rank >= world.size)
        throw wrong(fmt::format("{} is not a rank of {}", rank.dump(), world.size));
      if (taken[rank.get<size_t>()]) throw wrong(fmt::format("rank {} is in it twice", rank.get<int>()));
      taken[rank.get<size_t>()] = true;
      list.push_back(rank);
    }
    std::ranges::sort(list);
  }
  return lists;
}

/// A group as its ranks see it. `world` is null on ranks that are in no group.
struct ScriptGroup {
  std::shared_ptr<World> world;
  std::vector<int> ranks;  ///< of the whole world
};

/// Collective over all ranks: makes a group for each list. Throws lua::ScriptMistake on all ranks if their arguments differ.
ScriptGroup make_script_group(World& world, const std::string& name, const std::vector<std::vector<int>>& lists) {
  if (world.size > 1) {
    const auto texts = gather_texts(world, shortened(fmt::format("{} {}", name, lists)), name_bytes);
    if (differ(texts))
      throw ScriptMistake("group: every rank must make the same groups, in the same order: " +
                          describe_texts(texts, ""));
  }
  ScriptGroup mine;
  for (size_t i = 0; i < lists.size(); ++i) {
    const auto& ranks = lists[i];
    const auto place = std::ranges::find(ranks, world.rank);
    const auto group = ranks.size() > 1 ? world.make_subgroup(ranks, fmt::format("{}_{}", name, i)) : ProcessGroup();
    if (place == ranks.end()) continue;
    mine.ranks = ranks;
    mine.world = std::make_shared<World>();
    mine.world->rank = static_cast<int>(place - ranks.begin());
    mine.world->size = static_cast<int>(ranks.size());
    mine.world->device = world.device;
    mine.world->accelerator = world.accelerator;
    mine.world->group = group;
    mine.world->control = group;
  }
  return mine;
}

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
