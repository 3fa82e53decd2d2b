// A plug-in with another major version of the interface. It is never called: the version is read first.
#include <pjrt_c_api.h>

extern "C" const PJRT_Api* GetPjrtApi() {
  static const PJRT_Api api = [] {
    PJRT_Api made{};
    made.struct_size = PJRT_Api_STRUCT_SIZE;
    made.pjrt_api_version.major_version = PJRT_API_MAJOR + 7;
    made.pjrt_api_version.minor_version = 3;
    return made;
  }();
  return &api;
}
