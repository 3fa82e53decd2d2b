#include "strategies/pjrt/executable.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "runner/base/error.hpp"
#include "strategies/pjrt/calls.hpp"

namespace runner::pjrt {

Buffer::~Buffer() {
  if (!handle_) return;
  PJRT_ARGUMENTS(PJRT_Buffer_Destroy_Args, destroy);
  destroy.buffer = handle_;
  (void)plugin_->message_of(plugin_->api().PJRT_Buffer_Destroy(&destroy));
}

Shape Buffer::shape() const {
  PJRT_ARGUMENTS(PJRT_Buffer_Dimensions_Args, asked);
  asked.buffer = handle_;
  plugin_->check(plugin_->api().PJRT_Buffer_Dimensions(&asked), "cannot read the shape of an array");
  return {asked.dims, asked.dims + asked.num_dims};
}

ElementType Buffer::type() const {
  PJRT_ARGUMENTS(PJRT_Buffer_ElementType_Args, asked);
  asked.buffer = handle_;
  plugin_->check(plugin_->api().PJRT_Buffer_ElementType(&asked), "cannot read the type of an array");
  const auto* const found = std::ranges::find(element_types, asked.type, &ElementTypeNames::theirs);
  if (found == std::end(element_types))
    throw Error(ExitCode::run_failed, fmt::format("an array of XLA has elements of type {}, which is not used here",
                                                  static_cast<int>(asked.type)));
  return found->ours;
}

void Buffer::read(std::span<std::byte> out) const {
  const Type own{type(), shape()};
  RUNNER_CHECK(static_cast<int64_t>(out.size()) == own.bytes(), "{} bytes for an array of {} bytes", out.size(),
               own.bytes());
  // Row-major; without a layout, a plug-in gives that of the device.
  Shape order(own.shape.size());
  std::iota(order.rbegin(), order.rend(), 0);
  PJRT_ARGUMENTS(PJRT_Buffer_MemoryLayout, layout);
  layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
  layout.tiled.struct_size = PJRT_Buffer_MemoryLayout_Tiled_STRUCT_SIZE;
  layout.tiled.minor_to_major = order.data();
  layout.tiled.minor_to_major_size = order.size();
  PJRT_ARGUMENTS(PJRT_Buffer_ToHostBuffer_Args, copy);
  copy.src = handle_;
  copy.host_layout = &layout;
  std::byte nothing{};  // without a place to write to, only the size would be asked for
  copy.dst = out.empty() ? &nothing : out.data();
  copy.dst_size = out.size();
  plugin_->check(plugin_->api().PJRT_Buffer_ToHostBuffer(&copy), "cannot read an array");
  plugin_->wait_for(copy.event, "cannot read an array");
}

bool Buffer::donated() const {
  PJRT_ARGUMENTS(PJRT_Buffer_IsDeleted_Args, asked);
  asked.buffer = handle_;
  plugin_->check(plugin_->api().PJRT_Buffer_IsDeleted(&asked), "cannot ask for the state of an array");
  return asked.is_deleted;
}

Execution::~Execution() {
  for (auto* const end : ends_) try {
      plugin_->wait_for(end, "");
    } catch (const Error&) {  // reading an output reports it
    }
}

void Execution::wait() {
  const auto ends = std::exchange(ends_, {});
  std::string failure;
  bool of_memory = false;
  for (size_t device = 0; device < ends.size(); ++device) try {
      plugin_->wait_for(ends[device], "the program failed");
    } catch (const Error& error) {
      of_memory = of_memory || dynamic_cast<const OutOfMemory*>(&error);
      if (failure.empty()) failure = fmt::format("device {}: {}", device, error.what());
    }
  if (of_memory) throw OutOfMemory(failure);
  if (!failure.empty()) throw Error(ExitCode::run_failed, failure);
}

Executable::Executable(const Plugin& plugin, PJRT_LoadedExecutable* loaded, int replicas)
    : plugin_(&plugin), loaded_(loaded), replicas_(replicas) {
  try {
    describe();
  } catch (...) {
    close();
    throw;
  }
}

void Executable::describe() {
  PJRT_ARGUMENTS(PJRT_LoadedExecutable_GetExecutable_Args, get);
  get.loaded_executable = loaded_;
  plugin_->check(plugin_->api().PJRT_LoadedExecutable_GetExecutable(&get), "cannot read a compiled program");
  program_ = get.executable;
  PJRT_ARGUMENTS(PJRT_Executable_NumOutputs_Args, asked);
  asked.executable = program_;
  plugin_->check(plugin_->api().PJRT_Executable_NumOutputs(&asked), "cannot read a compiled program");
  outputs_ = asked.num_outputs;
}

Executable::Executable(Executable&& other) noexcept
    : plugin_(other.plugin_),
      loaded_(std::exchange(other.loaded_, nullptr)),
      program_(std::exchange(other.program_, nullptr)),
      replicas_(other.replicas_),
      outputs_(other.outputs_) {}

Executable::~Executable() { close(); }

void Executable::close() {
  if (program_) {
    PJRT_ARGUMENTS(PJRT_Executable_Destroy_Args, destroy);
    destroy.executable = program_;
    (void)plugin_->message_of(plugin_->api().PJRT_Executable_Destroy(&destroy));
  }
  if (loaded_) {
    PJRT_ARGUMENTS(PJRT_LoadedExecutable_Destroy_Args, destroy);
    destroy.executable = loaded_;
    (void)plugin_->message_of(plugin_->api().PJRT_LoadedExecutable_Destroy(&destroy));
  }
}

ProgramMemory Executable::memory() const {
  PJRT_ARGUMENTS(PJRT_Executable_GetCompiledMemoryStats_Args, stats);
  stats.executable = program_;
  plugin_->check(plugin_->api().PJRT_Executable_GetCompiledMemoryStats(&stats),
                 "XLA does not report the program's memory");
  return {.arguments = stats.argument_size_in_bytes,
          .outputs = stats.output_size_in_bytes,
          .aliased = stats.alias_size_in_bytes,
          .temporary = stats.temp_size_in_bytes};
}

Execution Executable::execute(const std::vector<std::vector<const Buffer*>>& arguments) const {
  RUNNER_CHECK(std::ssize(arguments) == replicas_, "arguments of {} replicas for {}", arguments.size(), replicas_);
  const size_t count = arguments.front().size();
  std::vector<std::vector<PJRT_Buffer*>> given, made(arguments.size(), std::vector<PJRT_Buffer*>(outputs_));
  for (const auto& list : arguments) {
    RUNNER_CHECK(list.size() == count, "replicas have {} and {} arguments", count, list.size());
    given.emplace_back();
    for (const auto* buffer : list) given.back().push_back(buffer->handle());
  }
  std::vector<PJRT_Buffer* const*> given_lists;
  std::vector<PJRT_Buffer**> made_lists;
  for (size_t replica = 0; replica < arguments.size(); ++replica) {
    given_lists.push_back(given[replica].data());
    made_lists.push_back(made[replica].data());
  }
  std::vector<PJRT_Event*> ends(arguments.size());
  PJRT_ARGUMENTS(PJRT_ExecuteOptions, options);
  PJRT_ARGUMENTS(PJRT_LoadedExecutable_Execute_Args, run);
  run.executable = loaded_;
  run.options = &options;
  run.argument_lists = given_lists.data();
  run.num_devices = arguments.size();
  run.num_args = count;
  run.output_lists = made_lists.data();
  run.device_complete_events = ends.data();
  plugin_->check(plugin_->api().PJRT_LoadedExecutable_Execute(&run), "XLA cannot start the program");
  std::vector<std::vector<Buffer>> outputs;
  for (const auto& list : made) {
    outputs.emplace_back();
    for (auto* const handle : list) outputs.back().emplace_back(*plugin_, handle);
  }
  return {*plugin_, std::move(outputs), std::move(ends)};
}

std::string Executable::serialized() const {
  PJRT_ARGUMENTS(PJRT_Executable_Serialize_Args, asked);
  asked.executable = program_;
  plugin_->check(plugin_->api().PJRT_Executable_Serialize(&asked), "the plug-in cannot store compiled programs");
  std::string bytes(asked.serialized_bytes, asked.serialized_bytes_size);
  asked.serialized_executable_deleter(asked.serialized_executable);
  return bytes;
}

}  // namespace runner::pjrt
