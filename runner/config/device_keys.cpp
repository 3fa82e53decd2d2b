// The keys of [precision], [devices] and [activation_checkpointing]: how the devices compute.
#include "runner/base/other_devices.hpp"
#include "runner/base/text.hpp"
#include "runner/config/device_request.hpp"
#include "runner/config/key_adder.hpp"
#include "runner/config/mesh_sizes.hpp"

// The rows of the tables are wrapped by hand.
// clang-format off

namespace runner::keys {

using nlohmann::json;

namespace {

/// Why a device or a backend that PyTorch has is not supported here.
std::string refused_accelerator(const json& value) {
  const auto word = value.is_string() ? lower(value.get<std::string>()) : "";
  return word == "mps" ? "accelerator \"mps\" is not supported; cpu and cuda are" : "";
}
std::string refused_backend(const json& value) {
  const auto word = value.is_string() ? lower(value.get<std::string>()) : "";
  if (word == "mpi")
    return "LibTorch is built without the \"mpi\" backend; \"gloo\" connects CPU ranks, \"nccl\" CUDA devices";
  return word == "hccl" ? "the \"hccl\" backend is for Gaudi devices, which this program cannot use; \"gloo\" connects CPU "
                          "ranks, \"nccl\" CUDA devices"
                        : "";
}

std::vector<std::string> accelerators() {
  std::vector<std::string> names = {"auto", "cpu", "cuda", "gpu"};
  names.insert(names.end(), other_devices().begin(), other_devices().end());
  return names;
}

const char* const devices_wanted = "a number of devices, \"auto\", indices such as \"1,3\" or [1, 3], or \"free:2\"";

std::optional<std::string> devices_problem(const json& value) {
  std::string why;
  if (parse_devices(value, why)) return std::nullopt;
  return fmt::format("`devices`: {}; it takes {}", why, devices_wanted);
}

}  // namespace

void add_precision(std::vector<Key>& keys) {
  Adder(keys, "precision", &Recipe::precision)(
      {.name = "mode", .type = T::choice,
       .help = "auto: bf16-mixed on devices that have bf16, otherwise 32-true.",
       .choices = {"auto", "16-mixed", "bf16-mixed", "16-true", "bf16-true", "32-true", "64-true"},
       .spellings = {{"16", "16-mixed"}, {"bf16", "bf16-mixed"}, {"32", "32-true"}, {"64", "64-true"},
                     {"fp16", "16-mixed"}, {"fp32", "32-true"}},
       .wanted = "a precision such as \"bf16-mixed\" or 32"},
      &Recipe::Precision::mode);
}

void add_devices(std::vector<Key>& keys) {
  Adder add(keys, "devices", &Recipe::devices);
  using D = Recipe::Devices;
  add({.name = "accelerator", .type = T::choice,
       .help = "Kind of device. auto: CUDA if there is a device, otherwise cpu. " + join(other_devices(), ", ") +
               ": with devices.simulate only; tpu also with a strategy for XLA that has a plugin. Others: plugins.accelerator.",
       .choices = accelerators(), .spellings = {{"gpu", "cuda"}}, .refuses = refused_accelerator},
      &D::accelerator);
  add.add({.name = "devices", .type = T::other,
           .help = "Devices on each node: a number, -1 (all), \"1,3\" or [1, 3] (indices), \"free:2\", \"auto\".",
           .wanted = devices_wanted, .fits = devices_problem},
          {.schema = {{"anyOf", {{{"type", "integer"}}, {{"type", "string"}},
                                 {{"type", "array"}, {"items", {{"type", "integer"}}}}}}}},
          [](Recipe::Devices& devices, const json& value) {
            std::string problem;
            devices.devices = *parse_devices(value, problem);
          },
          [](const Recipe::Devices& devices) { return json::parse(write_devices(devices.devices)); });
  add({.name = "cpu_processes", .type = T::integer, .help = "Number of ranks on each node when training on CPU. Without it, a mesh determines it.",
       .minimum = 1, .maximum = 1024}, &D::cpu_processes);
  add({.name = "num_nodes", .type = T::integer,
       .help = "Number of nodes. In an elastic run: of those with which it starts; default min_nodes.", .minimum = 1,
       .maximum = 100000}, &D::num_nodes);
  add({.name = "min_nodes", .type = T::integer,
       .help = "Makes the run elastic: nodes may leave and join while it trains, and it goes on from its newest "
               "checkpoint with the nodes that are there, at least this many. Default with max_nodes: 1.",
       .minimum = 1, .maximum = 100000}, &D::min_nodes);
  add({.name = "max_nodes", .type = T::integer,
       .help = "Most nodes of an elastic run; others wait until one leaves. Default with min_nodes: num_nodes.",
       .minimum = 1, .maximum = 100000}, &D::max_nodes);
  add({.name = "mesh", .type = T::table,
       .help = "{ pipeline, data, replicate, shard, context, tensor }: ranks along each axis, for example "
               "{ shard = 4, tensor = 2 }. Ranks of a tensor axis divide the matrices of the model, those of a pipeline its blocks, those of a "
               "context axis the tokens of each row. data is replicate x shard; without all three it is what is left over. If `devices` is not set, "
               "the mesh determines it.",
       .wanted = "a table of sizes such as { shard = 4, tensor = 2 }"}, &D::mesh, mesh_table());
  add({.name = "memory_limit", .type = T::bytes,
       .help = "Memory that may be used on each device, for example \"22GiB\".", .minimum = 1}, &D::memory_limit);
  add({.name = "threads_per_rank", .type = T::integer,
       .help = "CPU threads of each rank. Default: cores / local ranks.", .minimum = 1,
       .maximum = 1024}, &D::threads_per_rank);
  add({.name = "simulate", .type = T::boolean,
       .help = "Run a recipe for other hardware on this machine: CPU processes stand for all devices of all nodes."},
      &D::simulate);
  add({.name = "cluster", .type = T::choice,
       .help = "Launcher that started the ranks. auto: detected from the environment.",
       .choices = {"auto", "local", "torchrun", "slurm", "openmpi", "mpich", "lsf", "horovod", "bagua", "kubeflow"},
       .spellings = {{"torchelastic", "torchrun"}, {"torchelasticenvironment", "torchrun"}, {"slurmenvironment", "slurm"},
                     {"lsfenvironment", "lsf"}, {"kubeflowenvironment", "kubeflow"}, {"baguaenvironment", "bagua"}, {"lightning", "local"},
                     {"lightningenvironment", "local"}}}, &D::cluster);
  add({.name = "rendezvous_timeout", .type = T::duration,
       .help = "How long to wait for the other nodes at the start; in an elastic run also when too few nodes are "
               "left."}, &D::rendezvous_timeout);
  add({.name = "process_group_backend", .type = T::choice,
       .help = "Backend of collectives. Default: nccl on CUDA, a plug-in's own on its devices, shm in a host, otherwise gloo.",
       .choices = {"shm", "gloo", "nccl"}, .refuses = refused_backend}, &D::process_group_backend);
}

void add_activation_checkpointing(std::vector<Key>& keys) {
  Adder add(keys, "activation_checkpointing", &Recipe::activation_checkpointing);
  using A = Recipe::ActivationCheckpointing;
  add({.name = "mode", .type = T::choice, .help = "Which layers are recomputed in the backward pass.",
       .choices = {"none", "all", "every", "named"}}, &A::mode);
  add({.name = "every", .type = T::integer, .help = "mode = \"every\": recompute every k-th transformer layer.",
       .minimum = 1}, &A::every, {.needs = {"activation_checkpointing.mode", {"every"}}});
  add({.name = "blocks", .type = T::texts,
       .help = "mode = \"named\": names of layers (\"blocks.0\") or of their halves (\"blocks.0.mlp\") to "
               "recompute, as globs."},
      &A::blocks, {.needs = {"activation_checkpointing.mode", {"named"}}});
  add({.name = "cpu_checkpointing", .type = T::boolean,
       .help = "Keep the inputs of recomputed layers in pinned host memory between forward and backward (CUDA)."},
      &A::cpu_checkpointing);
}

}  // namespace runner::keys
