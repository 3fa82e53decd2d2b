#include "runner/data/plugin/messages.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <vector>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/data/plugin/data_plugin.h"

namespace runner {

namespace {

using nlohmann::json;

/// The library of a data plug-in, in the process that serves it.
class DataLibrary {
 public:
  /// Throws Error(usage) if the library cannot be loaded, exports no plug-in, has another version, or lacks functions.
  explicit DataLibrary(const std::string& path);
  const runner_data_plugin* operator->() const { return &plugin_; }

  /// Calls a function of the plug-in. Throws Error(usage) with its reason if it throws, or if `good` refuses its result.
  template <typename Call, typename Good>
  auto call(const char* name, Call&& function, Good&& good) const {
    std::array<char, 4096> error{};
    try {
      auto result = function(error.data(), error.size());
      if (good(result)) return result;
    } catch (const Error&) {
      throw;
    } catch (const std::exception& thrown) {
      throw usage_error("{}: {}", name, thrown.what());
    } catch (...) {
      throw usage_error("{} raised an exception that is not a std::exception", name);
    }
    error.back() = '\0';
    throw usage_error("{}: {}", name, error.front() ? error.data() : "it failed, and gives no reason");
  }

 private:
  runner_data_plugin plugin_ = {};  ///< members that the library does not have are null
};

DataLibrary::DataLibrary(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw usage_error("data.plugin: cannot load {}: {}", path, dlerror());
  auto* const entry = reinterpret_cast<const runner_data_plugin* (*)()>(dlsym(library, "runner_data"));
  if (!entry)
    throw usage_error("data.plugin: {} exports no data plug-in: the function runner_data() is missing{}", path,
                      dlsym(library, "runner_plugin") ? "; it exports a model, which is for model.plugin" : "");
  const auto* const found = entry();
  if (!found) throw usage_error("data.plugin: runner_data() of {} returns NULL", path);
  if (found->version != RUNNER_DATA_VERSION)
    throw usage_error(
        "data.plugin: {} was built for version {} of the interface of data plug-ins, and this program has version {}; "
        "build it again with the header of this program",
        path, found->version, RUNNER_DATA_VERSION);
  if (found->size < sizeof(runner_data_plugin))
    throw usage_error("data.plugin: {} says that its runner_data_plugin has {} bytes; version {} has {}", path,
                      found->size, RUNNER_DATA_VERSION, sizeof(runner_data_plugin));
  std::memcpy(&plugin_, found, std::min<size_t>(found->size, sizeof plugin_));
  const bool samples = plugin_.fields && plugin_.sample;
  for (const auto& [there, name] : {std::pair(plugin_.open != nullptr, "open"), {plugin_.count != nullptr, "count"}})
    if (!there) throw usage_error("data.plugin: {} has no function `{}`", path, name);
  if (!plugin_.record && !samples)
    throw usage_error("data.plugin: {} has neither the function `record` nor `fields` and `sample`", path);
  if (plugin_.record && samples)
    throw usage_error("data.plugin: {} gives records and samples; it must be one of them", path);
}

/// The options of a request, and which of them the plug-in has asked for. The request must be the first member.
struct AskedOptions {
  runner_data_request request = {};
  std::map<std::string, std::string> values = {};
  std::set<std::string> asked = {};

  static const char* option(const runner_data_request* request, const char* name) {
    auto& own = *const_cast<AskedOptions*>(reinterpret_cast<const AskedOptions*>(request));
    own.asked.insert(name);
    const auto found = own.values.find(name);
    return found == own.values.end() ? nullptr : found->second.c_str();
  }
};

/// A path that the plug-in has opened.
class Opened {
 public:
  Opened(const DataLibrary& library, const std::string& path, const json& start) : library_(library) {
    AskedOptions options;
    for (const auto& [name, value] : start.at("options").items())
      options.values[name] = value.is_string() ? value.get<std::string>() : value.dump();
    options.request = {.size = sizeof(runner_data_request),
                       .path = path.c_str(),
                       .seq_len = start.at("seq_len"),
                       .option = &AskedOptions::option};
    data_ = library_.call(
        "open()", [&](char* error, size_t size) { return library_->open(&options.request, error, size); },
        [](void* data) { return data != nullptr; });
    for (const auto& [name, value] : options.values) {
      if (options.asked.contains(name)) continue;
      const std::vector<std::string> known(options.asked.begin(), options.asked.end());
      const auto near = nearest(name, known);
      throw usage_error("data.options: the plug-in has no option `{}`{}", name,
                        near            ? fmt::format("; did you mean `{}`?", *near)
                        : known.empty() ? "; it has none"
                                        : "; it has " + join(known, ", "));
    }
    count_ = library_.call(
        "count()", [&](char* error, size_t size) { return library_->count(data_, error, size); },
        [](int64_t count) { return count >= 0; });
    if (library_->record == nullptr) take_fields();
  }
  ~Opened() {
    if (data_ && library_->close) library_->close(data_);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  json description() const {
    json fields = json::array();
    for (const auto& field : fields_)
      fields.push_back({{"name", field.name}, {"type", field.type}, {"row", field.shape}, {"classes", field.classes}});
    return {{"count", count_},
            {"text", library_->records_are_text != 0},
            {"records", library_->record != nullptr},
            {"fields", fields},
            {"weighs", library_->weight != nullptr}};
  }

  /// Records from `begin` until about a mebibyte, to `end`, or to one that cannot be read. Throws if that is the first.
  std::string records(int64_t begin, int64_t end, volatile int64_t* progress) {
    constexpr size_t enough = 1 << 20;
    std::string answer;
    for (int64_t index = begin; index < end && (index == begin || answer.size() < enough); ++index) {
      *progress = index;
      uint64_t size = 0;
      try {
        size = static_cast<uint64_t>(record(index));
      } catch (const std::exception&) {
        if (answer.empty()) throw;
        break;
      }
      answer.append(reinterpret_cast<const char*>(&size), sizeof size);
      answer.append(memory_.data(), size);
    }
    return answer;
  }

  std::string sample(int64_t index, volatile int64_t* progress) {
    *progress = index;
    // Behind each field are bytes that a plug-in must leave as they are.
    std::ranges::fill(sample_, Line{});
    char* const memory = sample_.front().bytes;
    std::vector<void*> places;
    for (const auto& field : fields_) {
      places.push_back(memory + field.begin);
      std::fill_n(memory + field.begin + field.bytes, guard_bytes, guard);
    }
    library_.call(
        "sample()",
        [&](char* error, size_t size) { return library_->sample(data_, index, places.data(), error, size); },
        [](int failed) { return failed == 0; });
    std::string answer;
    for (const auto& field : fields_) {
      const char* const end = memory + field.begin + field.bytes;
      answer.append(memory + field.begin, field.bytes);
      if (std::any_of(end, end + guard_bytes, [](char c) { return c != guard; }))
        throw usage_error("the plug-in writes behind the end of the field `{}`, which has {} bytes", field.name,
                          field.bytes);
    }
    return answer;
  }

  std::string weights(volatile int64_t* progress) {
    std::string answer;
    for (int64_t index = 0; index < count_; ++index) {
      *progress = index;
      const int64_t weight = library_->weight(data_, index);
      if (weight < 1 || weight > INT32_MAX)
        throw usage_error("the plug-in gives sample {} the weight {}; it must be at least 1", index, weight);
      const auto narrow = static_cast<int32_t>(weight);
      answer.append(reinterpret_cast<const char*>(&narrow), sizeof narrow);
    }
    return answer;
  }

  void check_index(int64_t index) const { RUNNER_CHECK(index >= 0 && index < count_); }

 private:
  struct Field {
    std::string name;
    uint32_t type;
    std::vector<int64_t> shape;
    int64_t classes;
    size_t bytes, begin;
  };
  /// Fields begin at such addresses, so that a plug-in can use vector instructions.
  struct alignas(64) Line {
    char bytes[64] = {};
  };
  static constexpr size_t guard_bytes = 64;
  static constexpr char guard = '\x5a';

  void take_fields() {
    uint32_t count = 0;
    size_t lines = 0;
    const auto* given = library_.call(
        "fields()", [&](char* error, size_t size) { return library_->fields(data_, &count, error, size); },
        [](const runner_data_field* fields) { return fields != nullptr; });
    for (uint32_t f = 0; f < count; ++f) {
      const auto& from = given[f];
      constexpr std::array<size_t, 6> bytes{0, 8, 4, 1, 1, 4};
      Field field{.name = from.name ? from.name : "",
                  .type = from.type,
                  .shape = {from.shape, from.shape + from.dimensions},
                  .classes = from.classes,
                  .bytes = 0,
                  .begin = lines * sizeof(Line)};
      if (field.name.empty()) throw usage_error("a field of the plug-in has no name");
      if (field.type == 0 || field.type >= bytes.size())
        throw usage_error("the field `{}` of the plug-in has the unknown type {}", field.name, field.type);
      int64_t elements = 1;
      for (const int64_t size : field.shape)
        if (size < 1 || __builtin_mul_overflow(elements, size, &elements) || elements > (int64_t{1} << 31))
          throw usage_error("the field `{}` of the plug-in has the impossible shape [{}]", field.name,
                            fmt::join(field.shape, ", "));
      field.bytes = static_cast<size_t>(elements) * bytes[field.type];
      lines += (field.bytes + guard_bytes + sizeof(Line) - 1) / sizeof(Line);
      fields_.push_back(std::move(field));
    }
    if (fields_.empty()) throw usage_error("the samples of the plug-in have no fields");
    sample_.resize(lines);
  }

  /// Writes a record to memory_ and returns its bytes.
  int64_t record(int64_t index) {
    const auto read = [&] {
      return library_.call(
          "record()",
          [&](char* error, size_t size) {
            return library_->record(data_, index, memory_.data(), memory_.size(), error, size);
          },
          [](int64_t bytes) { return bytes >= 0; });
    };
    if (memory_.empty()) memory_.resize(size_t{1} << 16);
    int64_t bytes = read();
    if (static_cast<size_t>(bytes) <= memory_.size()) return bytes;
    memory_.resize(static_cast<size_t>(bytes));
    const int64_t again = read();
    if (again > bytes)
      throw usage_error("the plug-in says that record {} has {} bytes, and then that it has {}", index, bytes, again);
    return again;
  }

  const DataLibrary& library_;
  void* data_ = nullptr;
  int64_t count_ = 0;
  std::vector<Field> fields_ = {};
  std::vector<Line> sample_ = {};  ///< memory of a sample
  std::vector<char> memory_ = {};  ///< of a record
};

class Server {
 public:
  Server(int socket, volatile int64_t* progress) : socket_(socket), progress_(progress) {}

  void run() {
    PluginQuestion question;
    while (receive_all(socket_, &question, sizeof question)) {
      std::string more(question.bytes, '\0');
      if (!receive_all(socket_, more.data(), more.size())) return;
      std::string answer;
      bool failed = false;
      try {
        answer = answer_to(question, more);
      } catch (const std::exception& error) {
        failed = true;
        answer = error.what();
      }
      const PluginAnswer head{.failed = failed, .bytes = answer.size()};
      if (!send_all(socket_, &head, sizeof head) || !send_all(socket_, answer.data(), answer.size())) return;
    }
  }

 private:
  std::string answer_to(const PluginQuestion& question, const std::string& more) {
    using Kind = PluginQuestion::Kind;
    *progress_ = -1;
    if (question.kind == Kind::start) {
      start_ = json::parse(more);
      library_ = std::make_unique<DataLibrary>(start_.at("library").get<std::string>());
      opened_.resize(start_.at("paths").size());
      return "";
    }
    auto& opened = opened_.at(question.source);
    if (!opened)
      opened = std::make_unique<Opened>(*library_, start_.at("paths").at(question.source).get<std::string>(), start_);
    if (question.kind == Kind::describe) return opened->description().dump();
    if (question.kind == Kind::weights) return opened->weights(progress_);
    opened->check_index(question.begin);
    return question.kind == Kind::sample ? opened->sample(question.begin, progress_)
                                         : opened->records(question.begin, question.end, progress_);
  }

  int socket_;
  volatile int64_t* progress_;
  json start_ = {};
  std::unique_ptr<DataLibrary> library_ = {};
  std::vector<std::unique_ptr<Opened>> opened_ = {};
};

/// Ends this process a while after the other side is gone, also while the plug-in does not return.
void end_with(int socket) {
  pollfd wait{.fd = socket, .events = POLLRDHUP, .revents = 0};
  while (::poll(&wait, 1, -1) < 0 && errno == EINTR) {
  }
  std::this_thread::sleep_for(std::chrono::seconds(2));
  ::_exit(1);
}

}  // namespace

int serve_data_plugin() {
  // Other descriptors belong to whoever started this process, and pipes among them must end with it.
  ::close_range(plugin_progress + 1, ~0u, 0);
  // Whoever started this process decides when it ends, and what the plug-in prints must not mix with the answers.
  ::signal(SIGINT, SIG_IGN);
  ::signal(SIGTERM, SIG_IGN);
  const int socket = ::fcntl(plugin_socket, F_DUPFD_CLOEXEC, plugin_progress + 1),
            null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (socket < 0 || null < 0 || ::dup2(null, 0) < 0 || ::dup2(2, 1) < 0) return 1;
  void* shared = ::mmap(nullptr, sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, plugin_progress, 0);
  if (shared == MAP_FAILED) return 1;
  ::close(plugin_progress);
  std::thread(end_with, socket).detach();
  Server(socket, static_cast<volatile int64_t*>(shared)).run();
  return 0;
}

bool send_all(int socket, const void* bytes, size_t count) {
  const auto* next = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t n = ::send(socket, next, count, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    next += n;
    count -= static_cast<size_t>(n);
  }
  return true;
}

bool receive_all(int socket, void* bytes, size_t count) {
  auto* next = static_cast<char*>(bytes);
  while (count > 0) {
    const ssize_t n = ::recv(socket, next, count, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    next += n;
    count -= static_cast<size_t>(n);
  }
  return true;
}

}  // namespace runner
