// A data source of one's own in a library: rows of features with a class, which are computed here. A real one would read them from
// `path`.
#include <runner/data_plugin.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace {

struct Rows {
  int64_t count, width;
  runner_data_field fields[2];
};

void* open_rows(const runner_data_request* request, char*, size_t) {
  const auto number = [&](const char* name, int64_t otherwise) {
    const char* text = request->option(request, name);
    return text ? std::stoll(text) : otherwise;
  };
  auto* rows = new Rows{number("count", 120), number("width", 4), {}};
  if (rows->width < 1) throw std::invalid_argument("width must be at least 1");
  rows->fields[0] = {"features", RUNNER_DATA_FLOAT32, 1, &rows->width, 0};
  rows->fields[1] = {"labels", RUNNER_DATA_INT64, 0, nullptr, 3};
  return rows;
}

int read_row(void* data, int64_t index, void* const* memory, char*, size_t) {
  const auto& rows = *static_cast<Rows*>(data);
  const int64_t label = index % 3;
  auto* features = static_cast<float*>(memory[0]);
  for (int64_t i = 0; i < rows.width; ++i)
    features[i] = static_cast<float>(std::sin(static_cast<double>(index * (i + 1))) + (label == i ? 2 : 0));
  *static_cast<int64_t*>(memory[1]) = label;
  return 0;
}

const runner_data_plugin plugin = {
    .version = RUNNER_DATA_VERSION,
    .size = sizeof(runner_data_plugin),
    .open = open_rows,
    .close = [](void* data) { delete static_cast<Rows*>(data); },
    .count = [](void* data, char*, size_t) { return static_cast<Rows*>(data)->count; },
    .record = nullptr,
    .records_are_text = 0,
    .fields = [](void* data, uint32_t* count, char*, size_t) -> const runner_data_field* {
      *count = 2;
      return static_cast<Rows*>(data)->fields;
    },
    .sample = read_row,
    .weight = nullptr};

}  // namespace

const runner_data_plugin* runner_data(void) { return &plugin; }
