// All facts together: read from the machine or from the file in RUNNER_FAKE_FACTS, and converted to and from JSON.

#include <algorithm>
#include <cstdlib>
#include <functional>

#include "runner/base/error.hpp"
#include "runner/base/files.hpp"
#include "runner/base/own_program.hpp"
#include "runner/base/text.hpp"
#include "runner/devices/probes.hpp"

namespace runner {

namespace {

/// One key of a JSON object and its field. The table is used in both directions.
template <typename Struct>
struct Field {
  const char* key;
  std::function<nlohmann::json(const Struct&)> get;
  std::function<void(Struct&, const nlohmann::json&)> set;
};

template <typename Struct, typename Value>
Field<Struct> field(const char* key, Value Struct::*member) {
  return {key, [=](const Struct& from) { return nlohmann::json(from.*member); },
          [=](Struct& to, const nlohmann::json& value) { to.*member = value.get<Value>(); }};
}

template <typename Struct>
nlohmann::json write_fields(const std::vector<Field<Struct>>& fields, const Struct& from) {
  nlohmann::json out = nlohmann::json::object();
  for (const auto& field : fields) out[field.key] = field.get(from);
  return out;
}

template <typename Struct>
void read_fields(const std::vector<Field<Struct>>& fields, const nlohmann::json& json, Struct& to) {
  if (!json.is_object()) throw usage_error("facts: {} must be an object, not {}", json.dump(), json.type_name());
  for (const auto& [key, value] : json.items()) {
    auto field =
        std::find_if(fields.begin(), fields.end(), [&](const auto& candidate) { return key == candidate.key; });
    if (field == fields.end()) {
      std::vector<std::string> known;
      for (const auto& candidate : fields) known.push_back(candidate.key);
      auto near = nearest(key, known);
      throw usage_error("facts: unknown key `{}`{}", key,
                        near ? fmt::format("; did you mean `{}`?", *near) : "; known are " + join(known, ", "));
    }
    try {
      field->set(to, value);
    } catch (const nlohmann::json::exception&) {
      throw usage_error("facts: `{}` cannot be {} ({})", key, value.dump(), value.type_name());
    }
  }
}

const std::vector<Field<DeviceFacts>>& device_fields() {
  static const std::vector<Field<DeviceFacts>> fields = {field("index", &DeviceFacts::index),
                                                         field("name", &DeviceFacts::name),
                                                         field("memory_bytes", &DeviceFacts::memory_bytes),
                                                         field("free_bytes", &DeviceFacts::free_bytes),
                                                         field("major", &DeviceFacts::major),
                                                         field("minor", &DeviceFacts::minor),
                                                         field("uuid", &DeviceFacts::uuid),
                                                         field("processes", &DeviceFacts::processes)};
  return fields;
}

const std::vector<Field<Facts>>& facts_fields() {
  static const std::vector<Field<Facts>> fields = {
      {"cuda",
       [](const Facts& facts) {
         nlohmann::json list = nlohmann::json::array();
         for (const DeviceFacts& device : facts.devices) list.push_back(write_fields(device_fields(), device));
         return list;
       },
       [](Facts& facts, const nlohmann::json& list) {
         facts.devices.clear();
         for (const auto& entry : list) {
           DeviceFacts device{.index = static_cast<int>(facts.devices.size())};
           read_fields(device_fields(), entry, device);
           if (!entry.contains("free_bytes")) device.free_bytes = device.memory_bytes;
           facts.devices.push_back(device);
         }
       }},
      field("cuda_problem", &Facts::cuda_problem),
      field("cuda_module", &Facts::cuda_module),
      field("cores", &Facts::cores),
      field("memory_bytes", &Facts::memory_bytes),
      field("memory_free_bytes", &Facts::memory_free_bytes),
      field("hostname", &Facts::hostname),
      field("kernel", &Facts::kernel),
      field("cpu", &Facts::cpu),
      field("avx2", &Facts::avx2),
      field("avx512", &Facts::avx512),
      field("onednn_isa", &Facts::onednn_isa)};
  return fields;
}

/// The CUDA module is in the folder of the executables, both in the build folder and after installation.
bool has_cuda_module() {
  std::error_code error;
  return fs::exists(beside_program("librunner_cuda.so"), error);
}

}  // namespace

nlohmann::json to_json(const Facts& facts) {
  auto json = write_fields(facts_fields(), facts);
  if (!facts.plugged) return json;
  json["accelerator"] = facts.accelerator.type;
  json["devices"] = std::exchange(json["cuda"], nlohmann::json::array());
  return json;
}

Facts facts_from_json(const nlohmann::json& json) {
  Facts facts;
  read_fields(facts_fields(), json, facts);
  if (facts.devices.empty() && facts.cuda_problem.empty()) facts.cuda_problem = "none listed in the facts given";
  return facts;
}

Facts read_facts() {
  if (const char* fake = std::getenv("RUNNER_FAKE_FACTS"); fake && *fake) {
    nlohmann::json json = nlohmann::json::parse(read_file(fake), nullptr, /*allow_exceptions=*/false);
    if (json.is_discarded()) throw usage_error("RUNNER_FAKE_FACTS names {}, which is not JSON", fake);
    return facts_from_json(json);
  }
  Facts facts;
  read_host("/", facts);
  read_cuda("libcuda.so.1", "libnvidia-ml.so.1", facts);
  facts.cuda_module = has_cuda_module();
  return facts;
}

}  // namespace runner
