#include "strategies/pjrt/buffer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>

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

}  // namespace runner::pjrt
