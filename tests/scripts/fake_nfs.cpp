// A library for LD_PRELOAD that reports every file system as NFS.
#include <sys/vfs.h>

extern "C" int statfs(const char*, struct statfs* info) noexcept {
  *info = {};
  info->f_type = 0x6969;
  return 0;
}
