// A filesystem of 4 MiB that a test can fill.
#pragma once
#include <sys/mount.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <string>

namespace runner::testing {

/// Mounted at `path` until the destructor. Skips the test if this process may mount nothing.
struct SmallDisk {
  std::filesystem::path path;
  explicit SmallDisk(const std::filesystem::path& where) : path(where) {
    std::filesystem::create_directories(path);
    if (::mount("tmpfs", path.c_str(), "tmpfs", 0, "size=4m") != 0) SKIP("no filesystem can be mounted here");
  }
  ~SmallDisk() { ::umount2(path.c_str(), MNT_DETACH); }
  SmallDisk(const SmallDisk&) = delete;
  void fill() const {
    std::ofstream file(path / "filler", std::ios::binary);
    const std::string block(4096, 'x');
    while (file.write(block.data(), 4096) && file.flush()) {
    }
  }
};

}  // namespace runner::testing
