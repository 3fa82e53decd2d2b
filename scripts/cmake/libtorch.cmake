# LibTorch 2.11 as imported targets: torch::cpu, and torch::cuda if CUDA's headers are installed. TorchConfig.cmake is not used,
# because it requires CUDA and Python.
if(DEFINED ENV{RUNNER_LIBTORCH})
  set(torch_default $ENV{RUNNER_LIBTORCH})
else()
  set(torch_default ${RUNNER_DEPS}/site/torch)
endif()
set(RUNNER_LIBTORCH ${torch_default} CACHE PATH "Folder with LibTorch's include/ and lib/")
if(NOT EXISTS ${RUNNER_LIBTORCH}/lib/libtorch_cpu.so)
  message(FATAL_ERROR "no LibTorch in ${RUNNER_LIBTORCH}: run scripts/setup, or name one with RUNNER_LIBTORCH")
endif()
file(STRINGS ${RUNNER_LIBTORCH}/include/torch/headeronly/version.h torch_version REGEX "VERSION_M(AJOR|INOR) [0-9]+")
if(NOT "${torch_version}" MATCHES "MAJOR 2;.*MINOR 11$")
  message(FATAL_ERROR "${RUNNER_LIBTORCH} is not LibTorch 2.11 (${torch_version})")
endif()

# These libraries name their dependencies (libcudart, libcupti) by their own run path. The linker need not resolve them.
add_library(torch::cpu INTERFACE IMPORTED)
target_include_directories(torch::cpu SYSTEM INTERFACE ${RUNNER_LIBTORCH}/include
                           ${RUNNER_LIBTORCH}/include/torch/csrc/api/include)
# The wheel contains headers of a newer fmt than the system's, and they are found first. Header-only they need no library, and
# their inline namespace keeps them separate from the system's.
target_compile_definitions(torch::cpu INTERFACE FMT_HEADER_ONLY=1)
target_link_options(torch::cpu INTERFACE -Wl,--no-as-needed -Wl,--allow-shlib-undefined)
target_link_libraries(torch::cpu INTERFACE ${RUNNER_LIBTORCH}/lib/libtorch_cpu.so ${RUNNER_LIBTORCH}/lib/libc10.so)

# CUDA: headers of an installed toolkit, or of the wheels from `scripts/setup --cuda`.
function(find_torch_cuda)
  set(nvidia ${RUNNER_LIBTORCH}/../nvidia)
  if(NOT RUNNER_CUDA)
    set(missing "RUNNER_CUDA is off")
  elseif(NOT EXISTS ${RUNNER_LIBTORCH}/lib/libtorch_cuda.so)
    set(missing "this LibTorch is built without CUDA")
  else()
    find_package(CUDAToolkit 13 QUIET)
    find_path(CUDA_INCLUDE crt/host_defines.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ${nvidia}/cu13/include NO_DEFAULT_PATH)
    find_path(NCCL_INCLUDE nccl.h HINTS ${CUDA_INCLUDE} ${nvidia}/nccl/include)
    find_library(CUDART NAMES libcudart.so.13 HINTS ${nvidia}/cu13/lib ${CUDAToolkit_LIBRARY_DIR} NO_DEFAULT_PATH)
    mark_as_advanced(CUDA_INCLUDE NCCL_INCLUDE CUDART)
    if(NOT CUDA_INCLUDE OR NOT CUDART)
      set(missing "no CUDA 13 toolkit, and no headers from scripts/setup --cuda")
    elseif(NOT NCCL_INCLUDE)
      set(missing "no nccl.h")
    endif()
  endif()
  if(missing)
    message(STATUS "CUDA module: left out (${missing})")
    return()
  endif()
  message(STATUS "CUDA module: built with the headers in ${CUDA_INCLUDE}")
  add_library(torch::cuda INTERFACE IMPORTED GLOBAL)
  target_include_directories(torch::cuda SYSTEM INTERFACE ${CUDA_INCLUDE} ${NCCL_INCLUDE})
  target_compile_definitions(torch::cuda INTERFACE USE_C10D_NCCL)
  target_link_libraries(torch::cuda INTERFACE torch::cpu ${RUNNER_LIBTORCH}/lib/libtorch_cuda.so
                        ${RUNNER_LIBTORCH}/lib/libc10_cuda.so ${CUDART})
  # An old-style run path (RPATH) is also used for the libraries of libraries: libraries that libtorch_cuda does not find in its
  # folder (cuBLAS, cuDNN, NCCL ...) may be in the toolkit.
  target_link_options(torch::cuda INTERFACE -Wl,--disable-new-dtags)
  if(CUDAToolkit_LIBRARY_DIR)
    target_link_options(torch::cuda INTERFACE -Wl,-rpath,${CUDAToolkit_LIBRARY_DIR})
  endif()
endfunction()
find_torch_cuda()
