// Arguments of PJRT's functions, and its types of elements. Only the sources of this library include it.
#pragma once
#include <pjrt_c_api.h>

#include "strategies/pjrt/array_type.hpp"

/// A struct of arguments, all zero but its size, which tells the plug-in the version of the caller.
#define PJRT_ARGUMENTS(Type, name) \
  Type name{};                     \
  name.struct_size = Type##_STRUCT_SIZE

namespace runner::pjrt {

/// A type of elements, and what PJRT calls it.
struct ElementTypeNames {
  ElementType ours;
  PJRT_Buffer_Type theirs;
};

inline constexpr ElementTypeNames element_types[] = {
    {ElementType::boolean, PJRT_Buffer_Type_PRED},  {ElementType::int32, PJRT_Buffer_Type_S32},
    {ElementType::int64, PJRT_Buffer_Type_S64},     {ElementType::float16, PJRT_Buffer_Type_F16},
    {ElementType::bfloat16, PJRT_Buffer_Type_BF16}, {ElementType::float32, PJRT_Buffer_Type_F32},
    {ElementType::float64, PJRT_Buffer_Type_F64}};

}  // namespace runner::pjrt
