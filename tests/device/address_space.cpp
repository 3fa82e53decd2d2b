#include "tests/device/address_space.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace runner::simulated {

namespace {

[[noreturn]] void fail(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

char* map_file(int file, size_t bytes, int protection) {
  void* mapped = ::mmap(nullptr, bytes, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (mapped == MAP_FAILED) fail("mmap for the simulated device");
  return static_cast<char*>(mapped);
}

}  // namespace

AddressSpace::AddressSpace(size_t bytes) : bytes_(bytes) {
  int file = ::memfd_create("simulated device", MFD_CLOEXEC);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(bytes)) != 0) fail("memory for the simulated device");
  begin_ = map_file(file, bytes, PROT_NONE);
  real_ = map_file(file, bytes, PROT_READ | PROT_WRITE);
  ::close(file);
}

void AddressSpace::allow(char* begin, size_t bytes, Access access) const {
  int protection = access == Access::all ? PROT_READ | PROT_WRITE : access == Access::read ? PROT_READ : PROT_NONE;
  if (::mprotect(begin, bytes, protection) != 0) fail("mprotect for the simulated device");
}

}  // namespace runner::simulated
