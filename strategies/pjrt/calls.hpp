// Arguments of PJRT's functions. Only the sources of this library include it.
#pragma once
#include <pjrt_c_api.h>

/// A struct of arguments, all zero but its size, which tells the plug-in the version of the caller.
#define PJRT_ARGUMENTS(Type, name) \
  Type name{};                     \
  name.struct_size = Type##_STRUCT_SIZE
