#include "runner/checkpoint/weight_file.hpp"

#include "runner/base/error.hpp"
#include "runner/checkpoint/float_types.hpp"
#include "runner/pretrained/gguf_model.hpp"

namespace runner {

namespace {

class SafetensorsWeights final : public WeightFile {
 public:
  explicit SafetensorsWeights(const fs::path& path) : file_(path) {}
  const fs::path& path() const override { return file_.path(); }
  const std::vector<TensorInfo>& tensors() const override { return file_.tensors(); }
  std::vector<std::string> readable_dtypes() const override { return {"F32", "BF16", "F16", "F64"}; }
  void read(const TensorInfo& tensor, int64_t offset, std::span<float> out) const override {
    const auto bytes = static_cast<size_t>(dtype_bytes(tensor.dtype));
    to_floats(tensor.dtype, file_.data(tensor).subspan(static_cast<size_t>(offset) * bytes, out.size() * bytes), out);
  }
  std::span<const std::byte> mapped(const TensorInfo& tensor) const override { return file_.data(tensor); }

 private:
  SafetensorsFile file_;
};

class GgufWeights final : public WeightFile {
 public:
  explicit GgufWeights(const fs::path& path) : file_(path) {
    for (const auto& tensor : file_.tensors()) {
      if (tensor.name == "rope_freqs.weight") continue;  // read as a setting
      auto place = gguf_place(file_, tensor.name);
      // `begin` and `end` are not bytes here: `begin` is the index in sources_.
      tensors_.push_back({place.name, tensor.type->name, tensor.shape, sources_.size(), sources_.size()});
      sources_.push_back({&tensor, std::move(place)});
    }
  }
  const fs::path& path() const override { return file_.path(); }
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  std::vector<std::string> readable_dtypes() const override { return readable_gguf_types(); }
  void read(const TensorInfo& tensor, int64_t offset, std::span<float> out) const override {
    const auto& [source, place] = sources_.at(tensor.begin);
    read_gguf(file_, *source, place, offset, out);
  }

 private:
  GgufFile file_;
  std::vector<TensorInfo> tensors_;
  std::vector<std::pair<const GgufTensor*, GgufPlace>> sources_;
};

}  // namespace

std::unique_ptr<WeightFile> open_weight_file(const fs::path& path) {
  if (is_gguf(path)) return std::make_unique<GgufWeights>(path);
  return std::make_unique<SafetensorsWeights>(path);
}

}  // namespace runner
