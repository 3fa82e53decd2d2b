// Which requests the server refuses.
#include "runner/ui/guard.hpp"

#include <catch2/catch_test_macros.hpp>

namespace runner::ui {

namespace {

Request with(std::multimap<std::string, std::string> headers) {
  return {.method = "GET", .path = "/api/1/runs", .query = {}, .headers = std::move(headers), .body = ""};
}

int status(const std::optional<Response>& refusal) { return refusal ? refusal->status : 200; }

}  // namespace

TEST_CASE("only the server's own address is answered") {
  const Guard guard("127.0.0.1", 8787, "secret");
  CHECK(status(guard.refusal(with({{"host", "127.0.0.1:8787"}}))) == 200);
  CHECK(status(guard.refusal(with({{"host", "localhost:8787"}}))) == 200);
  CHECK(status(guard.refusal(with({{"host", "[::1]:8787"}}))) == 200);
  CHECK(status(guard.refusal(with({{"host", "LOCALHOST:8787"}}))) == 200);
  // A tunnel has another port: ssh -L 9000:127.0.0.1:8787.
  for (const char* host : {"127.0.0.1", "127.0.0.1:80", "localhost:9000", "[::1]:9000"})
    CHECK(status(guard.refusal(with({{"host", host}}))) == 200);
  for (const char* host : {"", "evil.example:8787", "127.0.0.1:8787.evil.example", "127.0.0.1:", "[::1]evil:8787",
                           "localhost.evil.example:8787", "10.0.0.1:8787"})
    CHECK(status(guard.refusal(with({{"host", host}}))) == 403);
  CHECK(status(guard.refusal(with({}))) == 403);
  CHECK(status(guard.refusal(with({{"host", "127.0.0.1:8787"}, {"host", "evil.example"}}))) == 403);
}

TEST_CASE("on all addresses, any address of the machine is answered, but no foreign name") {
  const Guard guard("0.0.0.0", 8787, "secret");
  CHECK(status(guard.refusal(with({{"host", "192.168.1.7:8787"}}))) == 200);
  CHECK(status(guard.refusal(with({{"host", "[fe80::1]:8787"}}))) == 200);
  // Names that consist of hexadecimal digits are no addresses.
  for (const char* name : {"evil.example:8787", "bad.de:8787", "face.cc:8787", "[bad.de]:8787", "1.2.3:8787"})
    CHECK(status(guard.refusal(with({{"host", name}}))) == 403);
}

TEST_CASE(
    "on all addresses, the machine's name is answered; a refusal names what is answered, and which option helps") {
  const std::string name = machine_name();
  REQUIRE(!name.empty());
  const Guard all("0.0.0.0", 8787, "secret"), own("127.0.0.1", 8787, "secret");
  CHECK(status(all.refusal(with({{"host", name + ":8787"}}))) == 200);
  CHECK(status(all.refusal(with({{"host", name.substr(0, name.find('.')) + ":8787"}}))) == 200);
  CHECK(status(all.refusal(with({{"host", name + ".evil.example:8787"}}))) == 403);
  CHECK(status(own.refusal(with({{"host", name + ":8787"}}))) == (name == "localhost" ? 200 : 403));
  const std::string text = all.refusal(with({{"host", "evil.example:8787"}}))->body;
  for (const auto& part : {name + ":8787", std::string("localhost:8787"), std::string("any address of this machine"),
                           std::string("--host NAME"), std::string("evil.example:8787")})
    CHECK(text.find(part) != std::string::npos);
}

TEST_CASE("pages of other sites are refused") {
  const Guard guard("127.0.0.1", 8787, "secret");
  const std::pair<std::string, std::string> host{"host", "127.0.0.1:8787"};
  CHECK(status(guard.refusal(with({host, {"origin", "http://127.0.0.1:8787"}}))) == 200);
  CHECK(status(guard.refusal(with({host, {"origin", "http://evil.example"}}))) == 403);
  CHECK(status(guard.refusal(with({host, {"origin", "null"}}))) == 403);
  CHECK(status(guard.refusal(with({host, {"origin", "http://127.0.0.1:5000"}}))) == 403);  // another user's server
  CHECK(status(guard.refusal(with({{"host", "localhost:9000"}, {"origin", "http://localhost:9000"}}))) == 200);
  CHECK(status(guard.refusal(with({host, {"origin", "https://127.0.0.1:8787"}}))) == 403);
  CHECK(status(guard.refusal(with({host, {"sec-fetch-site", "cross-site"}, {"sec-fetch-mode", "no-cors"}}))) == 403);
  CHECK(status(guard.refusal(with({host, {"sec-fetch-site", "cross-site"}, {"sec-fetch-mode", "navigate"}}))) == 200);
}

TEST_CASE("changes and reading need the token") {
  const Guard guard("127.0.0.1", 8787, "secret"), read_only("127.0.0.1", 8787, "secret", {.read_only = true}),
      open("127.0.0.1", 8787, "secret", {.open_read = true}),
      shown("127.0.0.1", 8787, "", {.read_only = true, .open_read = true});
  const auto right = with({{"x-runner-token", "secret"}});
  CHECK(status(guard.writing_refusal(right)) == 200);
  CHECK(status(guard.reading_refusal(right)) == 200);
  CHECK(status(read_only.writing_refusal(right)) == 403);
  CHECK(status(read_only.reading_refusal(right)) == 200);
  for (const char* token : {"", "Secret", "secre", "secret "}) {
    const auto wrong = with({{"x-runner-token", token}});
    CHECK(status(guard.writing_refusal(wrong)) == 403);
    CHECK(status(guard.reading_refusal(wrong)) == 403);
    CHECK(status(open.reading_refusal(wrong)) == 200);
    CHECK(status(open.writing_refusal(wrong)) == 403);
    CHECK(status(shown.reading_refusal(wrong)) == 200);
    CHECK(status(shown.writing_refusal(wrong)) == 403);
  }
  const auto told = [&](const char* token) { return guard.reading_refusal(with({{"x-runner-token", token}}))->body; };
  CHECK(told("").find("this needs the token of the address") != std::string::npos);
  CHECK(told("other").find("the token is wrong: ") != std::string::npos);
  CHECK(status(guard.writing_refusal(with({}))) == 403);
  CHECK(status(guard.reading_refusal(with({}))) == 403);
  // An EventSource cannot set headers; no other address takes the token there.
  auto stream = with({});
  stream.query = {{"token", "secret"}};
  CHECK(status(guard.reading_refusal(stream)) == 403);
  stream.path = "/api/1/events";
  CHECK(status(guard.reading_refusal(stream)) == 200);
  stream.query = {{"token", "other"}};
  CHECK(status(guard.reading_refusal(stream)) == 403);
}

TEST_CASE("tokens are random") {
  CHECK(random_token().size() == 32);
  CHECK(random_token() != random_token());
}

TEST_CASE("every answer has a Content-Security-Policy that permits only the page's own files") {
  const Guard guard("127.0.0.1", 8787, "secret");
  Response response;
  guard.protect(response);
  const std::map<std::string, std::string> headers(response.headers.begin(), response.headers.end());
  CHECK(headers.at("Content-Security-Policy").starts_with("default-src 'none'; script-src 'self'; style-src 'self';"));
  CHECK(headers.at("X-Content-Type-Options") == "nosniff");
  CHECK(headers.at("Cache-Control") == "no-store");
}

}  // namespace runner::ui
