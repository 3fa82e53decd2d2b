#include "strategies/pjrt/buffer.hpp"

#include <fmt/format.h>

#include "runner/base/error.hpp"
#include "strategies/pjrt/calls.hpp"

namespace runner::pjrt {

Buffer::~Buffer() {
  if (!handle_) return;
  PJRT_ARGUMENTS(PJRT_Buffer_Destroy_Args, destroy);
  destroy.buffer = handle_;
  (void)plugin_->message_of(plugin_->api().PJRT_Buffer_Destroy(&destroy));
}

std::vector<int64_t> Buffer::shape() const {
  PJRT_ARGUMENTS(PJRT_Buffer_Dimensions_Args, asked);
  asked.buffer = handle_;
  plugin_->check(plugin_->api().PJRT_Buffer_Dimensions(&asked), "cannot read the shape of an array");
  return {asked.dims, asked.dims + asked.num_dims};
}

ElementType Buffer::type() const {
  PJRT_ARGUMENTS(PJRT_Buffer_ElementType_Args, asked);
  asked.buffer = handle_;
  plugin_->check(plugin_->api().PJRT_Buffer_ElementType(&asked), "cannot read the type of an array");
  switch (asked.type) {
    case PJRT_Buffer_Type_PRED:
      return ElementType::boolean;
    case PJRT_Buffer_Type_S32:
      return ElementType::int32;
    case PJRT_Buffer_Type_S64:
      return ElementType::int64;
    case PJRT_Buffer_Type_F16:
      return ElementType::float16;
    case PJRT_Buffer_Type_BF16:
      return ElementType::bfloat16;
    case PJRT_Buffer_Type_F32:
      return ElementType::float32;
    case PJRT_Buffer_Type_F64:
      return ElementType::float64;
    default:
      throw Error(ExitCode::run_failed, fmt::format("an array of XLA has elements of type {}, which is not used here",
                                                    static_cast<int>(asked.type)));
  }
}

void Buffer::read(std::span<std::byte> out) const {
  int64_t bytes = bytes_of(type());
  for (const int64_t size : shape()) bytes *= size;
  RUNNER_CHECK(static_cast<int64_t>(out.size()) == bytes, "{} bytes for an array of {} bytes", out.size(), bytes);
  PJRT_ARGUMENTS(PJRT_Buffer_ToHostBuffer_Args, copy);
  copy.src = handle_;
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
