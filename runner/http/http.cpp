#include "runner/http/http.hpp"

#define CURL_DISABLE_TYPECHECK  // its macros need the functions to be linked
#include <curl/curl.h>
#include <dlfcn.h>

#include <algorithm>

#include "runner/base/error.hpp"
#include "runner/base/secrets.hpp"

namespace runner {

namespace {

void* open_curl() {
  void* library = nullptr;
  for (const char* name : {"libcurl.so.4", "libcurl-gnutls.so.4"})
    if (!library) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!library) throw environment_error("cannot load libcurl, which HTTP requests need: install the package libcurl4");
  return library;
}

/// The address of a function, which becomes a pointer of the type that it is assigned to.
struct Symbol {
  void* address;
  template <typename Function>
  operator Function*() const {
    return reinterpret_cast<Function*>(address);
  }
};

/// The functions of libcurl.
struct Curl {
  Curl() { global_init(CURL_GLOBAL_DEFAULT); }
  Symbol take(const char* name) const {
    if (void* address = dlsym(library, name)) return {address};
    throw environment_error("libcurl has no {}: {}", name, dlerror());
  }

  void* library = open_curl();
  decltype(&curl_global_init) global_init = take("curl_global_init");
  decltype(&curl_easy_init) easy_init = take("curl_easy_init");
  decltype(&curl_easy_reset) easy_reset = take("curl_easy_reset");
  decltype(&curl_easy_setopt) easy_setopt = take("curl_easy_setopt");
  decltype(&curl_easy_perform) easy_perform = take("curl_easy_perform");
  decltype(&curl_easy_getinfo) easy_getinfo = take("curl_easy_getinfo");
  decltype(&curl_easy_cleanup) easy_cleanup = take("curl_easy_cleanup");
  decltype(&curl_easy_strerror) easy_strerror = take("curl_easy_strerror");
  decltype(&curl_slist_append) slist_append = take("curl_slist_append");
  decltype(&curl_slist_free_all) slist_free_all = take("curl_slist_free_all");
};

const Curl& curl() {
  static const Curl loaded;
  return loaded;
}

constexpr size_t longest_body = 16 << 20;

/// A function for libcurl, which appends to a string. A result other than the size ends the request.
size_t append_body(const char* bytes, size_t size, size_t count, void* body) {
  auto& text = *static_cast<std::string*>(body);
  if (text.size() + size * count > longest_body) return 0;
  text.append(bytes, size * count);
  return size * count;
}

/// Called by libcurl about once a second; a result other than 0 ends the request.
int look_for_stop(void* stopped, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<std::atomic<bool>*>(stopped)->load() ? 1 : 0;
}

}  // namespace

HttpClient::HttpClient() : handle_(curl().easy_init()) { RUNNER_CHECK(handle_, "curl_easy_init failed"); }

HttpClient::~HttpClient() { curl().easy_cleanup(handle_); }

HttpReply HttpClient::send(const HttpRequest& request) {
  HttpReply reply;
  if (stopped_) return {.status = 0, .body = {}, .problem = "stopped"};
  const auto set = [&](CURLoption option, auto value) { curl().easy_setopt(handle_, option, value); };
  constexpr long connect_timeout_ms = 3'000;
  curl_slist* headers = nullptr;
  for (const auto& header : request.headers) headers = curl().slist_append(headers, header.c_str());
  headers = curl().slist_append(headers, "Expect:");  // no round trip before the body
  curl().easy_reset(handle_);                         // keeps the connections
  set(CURLOPT_URL, request.url.c_str());
  set(CURLOPT_NOSIGNAL, 1L);  // threads
  set(CURLOPT_CONNECTTIMEOUT_MS, connect_timeout_ms);
  set(CURLOPT_TIMEOUT_MS, static_cast<long>(request.timeout.count()));
  set(CURLOPT_USERAGENT, "runner");
  set(CURLOPT_HTTPHEADER, headers);
  set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
  if (request.method != "GET") {
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
    set(CURLOPT_POSTFIELDS, request.body.data());
  }
  if (!request.user.empty()) {
    set(CURLOPT_USERNAME, request.user.c_str());
    set(CURLOPT_PASSWORD, request.password.c_str());
  }
  set(CURLOPT_WRITEFUNCTION, &append_body);
  set(CURLOPT_WRITEDATA, static_cast<void*>(&reply.body));
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_XFERINFOFUNCTION, &look_for_stop);
  set(CURLOPT_XFERINFODATA, static_cast<void*>(&stopped_));
  const CURLcode result = curl().easy_perform(handle_);
  curl().slist_free_all(headers);
  if (result != CURLE_OK) {
    reply.problem = result == CURLE_WRITE_ERROR ? "the reply is longer than 16 MiB" : curl().easy_strerror(result);
    reply.body.clear();
    return reply;
  }
  long status = 0;
  curl().easy_getinfo(handle_, CURLINFO_RESPONSE_CODE, &status);
  reply.status = static_cast<int>(status);
  return reply;
}

namespace {

size_t host_of_url(const std::string& url) {
  const auto scheme = url.find("://");
  return scheme == std::string::npos ? 0 : scheme + 3;
}

/// The URL up to the first of `end_signs` behind the beginning of its host, without the user and the password.
std::string url_until(const std::string& given, std::string_view end_signs) {
  const auto begin = host_of_url(given);
  const bool ends_there = given.substr(begin, given.find_first_of("/?#", begin) - begin).find('@') != std::string::npos;
  std::string url = ends_there ? given : without_url_passwords(given);  // a password may have a "/"
  const size_t end = url.find_first_of(end_signs, host_of_url(url)), host = host_of_url(url);
  const size_t authority_end = std::min(url.find_first_of("/?#", host), end);
  url.resize(std::min(end, url.size()));
  const auto at = url.rfind('@', authority_end);
  if (at != std::string::npos && at >= host && at < authority_end) url.erase(host, at + 1 - host);
  return url;
}

}  // namespace

std::string origin_of_url(const std::string& url) { return url_until(url, "/?#"); }

std::string page_of_url(const std::string& url) { return url_until(url, "?#"); }

}  // namespace runner
