#include "runner/checkpoint/manifest.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>
#include <ranges>
#include <span>
#include <tuple>

#include "runner/base/error.hpp"
#include "runner/base/files.hpp"
#include "runner/base/foreign_json.hpp"
#include "runner/base/xxh3.hpp"
#include "runner/checkpoint/safetensors.hpp"

namespace runner {

namespace {

using nlohmann::json;

constexpr const char* format_name = "runner-checkpoint";

/// A value in a manifest with its path in the JSON, for error messages. Each accessor checks the type.
class Part {
 public:
  Part(const fs::path& file, std::string place, const json& value)
      : file_(file), place_(std::move(place)), value_(value) {}

  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    auto what = fmt::format(format, std::forward<Args>(args)...);
    throw environment_error("{}: {}{}", file_.string(), place_.empty() ? "" : place_ + " ", what);
  }

  Part at(const std::string& key) const {
    if (!value_.is_object()) fail("is not a table");
    auto found = value_.find(key);
    if (found == value_.end()) fail("has no `{}`", key);
    return {file_, place_.empty() ? key : place_ + "." + key, *found};
  }
  std::vector<std::pair<std::string, Part>> entries() const {
    if (!value_.is_object()) fail("is not a table");
    std::vector<std::pair<std::string, Part>> parts;
    for (const auto& [key, entry] : value_.items()) parts.push_back({key, {file_, place_ + ".`" + key + "`", entry}});
    return parts;
  }
  std::vector<Part> elements() const {
    if (!value_.is_array()) fail("is not a list");
    std::vector<Part> parts;
    for (size_t i = 0; i < value_.size(); ++i) parts.push_back({file_, fmt::format("{}[{}]", place_, i), value_[i]});
    return parts;
  }
  std::string text() const {
    if (!value_.is_string()) fail("is not a string");
    return value_.get<std::string>();
  }
  double number() const {
    if (!value_.is_number()) fail("is not a number");
    return value_.get<double>();
  }
  /// A size or offset: an integer from 0 to 2^63 - 1.
  int64_t size() const {
    bool right = value_.is_number_integer() &&
                 (!value_.is_number_unsigned() || value_.get<uint64_t>() <= std::numeric_limits<int64_t>::max()) &&
                 value_.get<int64_t>() >= 0;
    if (!right) fail("= {} is not a valid size", value_.dump());
    return value_.get<int64_t>();
  }
  const json& value() const { return value_; }

 private:
  const fs::path& file_;
  std::string place_;
  const json& value_;
};

/// Checks format, version and hash. The version comes first, because a newer version may compute its hash differently.
void check_envelope(const Part& root) {
  if (!root.value().is_object() || !root.value().contains("format") || root.at("format").value() != format_name)
    root.fail("this is not the manifest of a checkpoint");
  if (int64_t version = root.at("version").size(); version > manifest_version)
    root.fail("format version {}, but this program reads up to version {}: use a newer runner", version,
              manifest_version);
  json sealed = root.value();
  seal_manifest(sealed);
  if (root.at("xxh3").text() != sealed.at("xxh3"))
    root.fail("corrupted: its hash is {} instead of {}", sealed.at("xxh3").get<std::string>(), root.at("xxh3").text());
}

std::vector<ManifestFile> read_files(const Part& list) {
  std::vector<ManifestFile> files;
  for (const auto& [name, part] : list.entries()) {
    if (fs::path(name).filename() != name) part.fail("is not the name of a file in the same folder");
    files.push_back({name, part.at("bytes").size(), part.at("xxh3").text()});
  }
  return files;
}

std::vector<int64_t> read_sizes(const Part& list) {
  std::vector<int64_t> sizes;
  for (const auto& size : list.elements()) sizes.push_back(size.size());
  return sizes;
}

/// A piece without a slice is of the whole tensor, as all pieces of version 1 are.
TensorSlice read_slice(const Part& part, const std::vector<int64_t>& shape) {
  if (!part.value().contains("slice")) return {};
  const Part found = part.at("slice");
  const TensorSlice slice{read_sizes(found.at("start")), read_sizes(found.at("size"))};
  if (slice.whole() || !is_inside(slice, shape))
    found.fail("= {} is not a slice of a tensor [{}]", found.value().dump(), fmt::join(shape, ", "));
  return normalized(slice, shape);
}

bool is_in_file(const ManifestPiece& piece, int64_t element_bytes, int64_t file_bytes) {
  int64_t bytes = 0, end = 0;
  return piece.byte >= 0 && piece.length >= 0 && !__builtin_mul_overflow(piece.length, element_bytes, &bytes) &&
         !__builtin_add_overflow(piece.byte, bytes, &end) && end <= file_bytes;
}

ManifestPiece read_piece(const Part& part, const std::vector<ManifestFile>& files, const std::vector<int64_t>& shape,
                         int64_t element_bytes) {
  auto name = part.at("file").text();
  auto file = std::find_if(files.begin(), files.end(), [&](const auto& candidate) { return candidate.name == name; });
  if (file == files.end()) part.fail("is in `{}`, which is not among the files", name);
  ManifestPiece piece{static_cast<size_t>(file - files.begin()), part.at("byte").size(), part.at("offset").size(),
                      part.at("length").size(), read_slice(part, shape)};
  if (!is_in_file(piece, element_bytes, file->bytes))
    part.fail("= {} elements from byte {} reaches beyond the {} bytes of {}", piece.length, piece.byte, file->bytes,
              name);
  return piece;
}

/// `records`: of pieces.bin; 0 if the pieces are in the manifest.
ManifestTensor read_tensor(const Part& part, const std::vector<ManifestFile>& files, size_t records) {
  ManifestTensor tensor;
  tensor.dtype = part.at("dtype").text();
  auto element_bytes = find_dtype_bytes(tensor.dtype);
  if (!element_bytes) part.at("dtype").fail("= `{}` cannot be read", tensor.dtype);
  tensor.shape = read_sizes(part.at("shape"));
  if (!checked_numel(tensor.shape)) part.at("shape").fail("has too many elements");
  if (records == 0) {
    for (const auto& piece : part.at("pieces").elements())
      tensor.pieces.push_back(read_piece(piece, files, tensor.shape, *element_bytes));
    return tensor;
  }
  for (const auto& run : part.at("runs").elements()) {
    const auto first = static_cast<size_t>(run.at("first").size()), count = static_cast<size_t>(run.at("count").size());
    if (first > records || count > records - first)
      run.fail("= records {} to {} are beyond the {} records of {}", first, first + count, records, pieces_name);
    tensor.runs.push_back({read_slice(run, tensor.shape), first, count});
  }
  return tensor;
}

}  // namespace

namespace {

using Pieces = std::span<const ManifestPiece>;  ///< of one slice, sorted by offset

std::optional<std::string> interval_fault(Pieces pieces, int64_t numel, const std::string& what) {
  int64_t end = 0;
  for (const auto& piece : pieces) {
    if (piece.offset < end)
      return fmt::format("elements [{}, {}) of {} occur twice", piece.offset,
                         std::min(end, piece.offset + piece.length), what);
    if (piece.offset > end) return fmt::format("elements [{}, {}) of {} are in no file", end, piece.offset, what);
    if (piece.length > numel - end)
      return fmt::format("elements [{}, {}) of {} are beyond its {} elements", piece.offset,
                         piece.offset + piece.length, what, numel);
    end += piece.length;
  }
  if (end < numel) return fmt::format("elements [{}, {}) of {} are in no file", end, numel, what);
  return std::nullopt;
}

/// Whether slices overlap, or leave elements of the tensor out.
std::optional<std::string> slices_fault(const std::vector<TensorSlice>& slices, const std::vector<int64_t>& shape,
                                        const std::string& name) {
  auto text = [](const TensorSlice& slice) { return slice.whole() ? "[:]" : to_text(slice); };
  int64_t covered = 0;
  for (size_t i = 0; i < slices.size(); ++i) {
    covered += slice_numel(slices[i], shape);
    for (size_t k = 0; k < i; ++k)
      if (slices_overlap(slices[i], slices[k], shape))
        return fmt::format("the slices {} and {} of `{}` overlap", text(slices[k]), text(slices[i]), name);
  }
  const int64_t numel = slice_numel({}, shape);
  if (covered < numel) return fmt::format("{} of the {} elements of `{}` are in no file", numel - covered, numel, name);
  return std::nullopt;
}

std::optional<std::string> tensor_fault(const std::string& name, ManifestTensor& tensor) {
  auto& pieces = tensor.pieces;
  auto order = [](const ManifestPiece& piece) {
    return std::tie(piece.slice.start, piece.slice.size, piece.offset, piece.length);
  };
  std::sort(pieces.begin(), pieces.end(), [&](const auto& a, const auto& b) { return order(a) < order(b); });
  if (pieces.empty()) return interval_fault({}, slice_numel({}, tensor.shape), "`" + name + "`");
  std::vector<TensorSlice> slices;
  for (auto first = pieces.begin(); first != pieces.end();) {
    const auto next = std::find_if(first, pieces.end(), [&](const auto& piece) { return piece.slice != first->slice; });
    const auto what = "`" + name + "`" + to_text(first->slice);
    if (auto fault = interval_fault({first, next}, slice_numel(first->slice, tensor.shape), what)) return fault;
    slices.push_back(first->slice);
    first = next;
  }
  return slices_fault(slices, tensor.shape, name);
}

}  // namespace

std::optional<std::string> coverage_fault(std::map<std::string, ManifestTensor>& tensors) {
  for (auto& [name, tensor] : tensors)
    if (auto fault = tensor_fault(name, tensor)) return fault;
  return std::nullopt;
}

void add_slice(json& piece, const TensorSlice& slice) {
  if (!slice.whole()) piece["slice"] = {{"start", slice.start}, {"size", slice.size}};
}

TensorSlice slice_of(const json& piece) {
  const auto found = piece.find("slice");
  if (found == piece.end()) return {};
  return {found->at("start").get<std::vector<int64_t>>(), found->at("size").get<std::vector<int64_t>>()};
}

void seal_manifest(json& manifest) {
  manifest.erase("xxh3");
  auto text = manifest.dump();
  manifest["xxh3"] = xxh3_hex(text);
}

int64_t attempt_of(const nlohmann::json& state) {
  const auto found = state.find("attempt");
  return found != state.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
}

namespace {

json pieces_as_json(const ManifestTensor& tensor, const std::vector<ManifestFile>& files) {
  json pieces = json::array();
  for (const auto& piece : tensor.pieces) {
    pieces.push_back(
        {{"file", files[piece.file].name}, {"byte", piece.byte}, {"offset", piece.offset}, {"length", piece.length}});
    add_slice(pieces.back(), piece.slice);
  }
  return pieces;
}

static_assert(std::endian::native == std::endian::little && sizeof(PieceRecord) == 32);

/// Appends the records of a tensor, whose pieces are sorted, and returns its runs. `places`: of the files in the order of their names.
json append_records(std::string& records, const ManifestTensor& tensor, const std::vector<uint64_t>& places) {
  json runs = json::array();
  const TensorSlice* slice = nullptr;
  for (const auto& piece : tensor.pieces) {
    if (!slice || *slice != piece.slice) {
      slice = &piece.slice;
      runs.push_back({{"first", records.size() / sizeof(PieceRecord)}, {"count", 0}});
      add_slice(runs.back(), piece.slice);
    }
    runs.back()["count"] = runs.back().at("count").get<int64_t>() + 1;
    const PieceRecord record{places[piece.file], piece.byte, piece.offset, piece.length};
    records.append(reinterpret_cast<const char*>(&record), sizeof record);
  }
  return runs;
}

/// The place of each file in the order of their names.
std::vector<uint64_t> places_by_name(const std::vector<ManifestFile>& files) {
  std::vector<size_t> order(files.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t i) { return files[i].name; });
  std::vector<uint64_t> places(files.size());
  for (size_t place = 0; place < order.size(); ++place) places[order[place]] = place;
  return places;
}

}  // namespace

ManifestTexts write_manifest(const Manifest& manifest) {
  size_t count = 0;
  for (const auto& [name, tensor] : manifest.tensors) count += tensor.pieces.size();
  const bool many = count > pieces_in_json_max;
  const auto places = places_by_name(manifest.files);
  ManifestTexts texts;
  json files = json::object(), tensors = json::object();
  for (const auto& file : manifest.files) files[file.name] = {{"bytes", file.bytes}, {"xxh3", file.xxh3}};
  for (const auto& [name, tensor] : manifest.tensors) {
    auto& entry = tensors[name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}};
    if (many)
      entry["runs"] = append_records(texts.pieces, tensor, places);
    else
      entry["pieces"] = pieces_as_json(tensor, manifest.files);
  }
  json root = {{"format", format_name},       {"version", many ? manifest_version : 2},
               {"step", manifest.step},       {"world_size", manifest.world_size},
               {"created", manifest.created}, {"state", manifest.state},
               {"files", std::move(files)},   {"tensors", std::move(tensors)}};
  if (many) root["pieces"] = {{"bytes", texts.pieces.size()}, {"xxh3", xxh3_hex(texts.pieces)}};
  seal_manifest(root);
  texts.manifest = root.dump(1) + "\n";
  return texts;
}

PieceRecords::PieceRecords(const fs::path& folder, const Manifest& manifest)
    : manifest_(manifest), file_(folder / pieces_name) {
  if (std::ssize(file_.bytes()) != manifest.pieces_file.bytes)
    throw environment_error("{} has {} bytes instead of {}", file_.path().string(), file_.bytes().size(),
                            manifest.pieces_file.bytes);
}

PieceRecord PieceRecords::at(size_t index) {
  PieceRecord record;
  std::memcpy(&record, file_.bytes().data() + index * sizeof record, sizeof record);
  bytes_read_ += sizeof record;
  return record;
}

void PieceRecords::visit(const PieceRun& run, int64_t element_bytes, int64_t begin, int64_t end,
                         const std::function<void(const ManifestPiece&)>& visit) {
  const auto all = std::views::iota(run.first, run.first + run.count);
  const auto ends_before = [&](size_t index) {
    const auto record = at(index);
    return record.offset + record.length <= begin;
  };
  for (auto index = std::ranges::partition_point(all, ends_before); index != all.end(); ++index) {
    const auto record = at(*index);
    if (record.offset >= end) return;
    const ManifestPiece piece{record.file, record.byte, record.offset, record.length, run.slice};
    if (piece.file >= manifest_.files.size() || !is_in_file(piece, element_bytes, manifest_.files[piece.file].bytes) ||
        piece.offset < 0)
      throw environment_error("{}: corrupted: record {} is not a piece of a file", file_.path().string(), *index);
    visit(piece);
  }
}

namespace {

/// Checks the hash of pieces.bin and sets the pieces of the tensors.
void read_pieces(const fs::path& folder, Manifest& manifest) {
  PieceRecords records(folder, manifest);
  if (const auto hash = xxh3_hex(records.file().bytes()); hash != manifest.pieces_file.xxh3)
    throw environment_error("{} is corrupted: its hash is {} instead of {}", records.file().path().string(), hash,
                            manifest.pieces_file.xxh3);
  for (auto& [name, tensor] : manifest.tensors) {
    for (const auto& run : tensor.runs)
      records.visit(run, dtype_bytes(tensor.dtype), 0, INT64_MAX,
                    [&](const ManifestPiece& piece) { tensor.pieces.push_back(piece); });
    tensor.runs.clear();
  }
}

Manifest parse_manifest(const fs::path& folder) {
  fs::path file = folder / manifest_name;
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) throw environment_error("{}: there is no such checkpoint", folder.string());
  if (!fs::exists(file, ignored)) throw environment_error("{} is missing", file.string());
  auto parsed = foreign_json(read_file(file));
  Part root(file, "", parsed);
  check_envelope(root);

  Manifest manifest;
  manifest.step = root.at("step").size();
  manifest.world_size = root.at("world_size").size();
  manifest.created = root.at("created").number();
  manifest.state = root.at("state").value();
  manifest.files = read_files(root.at("files"));
  size_t records = 0;
  if (root.value().contains("pieces")) {
    const auto pieces = root.at("pieces");
    manifest.pieces_file = {pieces_name, pieces.at("bytes").size(), pieces.at("xxh3").text()};
    records = static_cast<size_t>(manifest.pieces_file.bytes) / sizeof(PieceRecord);
  }
  for (const auto& [name, part] : root.at("tensors").entries())
    manifest.tensors[name] = read_tensor(part, manifest.files, records);
  return manifest;
}

/// Requires that the pieces of manifest.json, which have been read, cover its tensors.
void require_coverage(const fs::path& folder, Manifest& manifest) {
  if (auto fault = coverage_fault(manifest.tensors))
    throw environment_error("{}: {}", (folder / manifest_name).string(), *fault);
}

}  // namespace

Manifest read_manifest(const fs::path& folder) {
  Manifest manifest = parse_manifest(folder);
  if (!manifest.pieces_file.name.empty()) read_pieces(folder, manifest);
  require_coverage(folder, manifest);
  return manifest;
}

Manifest read_manifest_only(const fs::path& folder) {
  Manifest manifest = parse_manifest(folder);
  if (manifest.pieces_file.name.empty()) require_coverage(folder, manifest);
  return manifest;
}

std::string manifest_digest(const fs::path& folder) {
  std::error_code error;
  const fs::path file = folder / manifest_name;
  return fs::is_regular_file(file, error) ? xxh3_hex(read_file(file)) : "";
}

}  // namespace runner
