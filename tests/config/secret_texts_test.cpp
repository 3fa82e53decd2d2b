// Recipes as texts without secrets: values are found however they are written.
#include "runner/config/secret_texts.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace runner;

TEST_CASE("a recipe's text keeps its form, and none of its secrets") {
  Secrets secrets;
  CHECK(recipe_without_secrets(R"(# é password = "of a comment"
[hooks.mail]  # "ü"
to = "me"
password = "ab\"cd\\efgh"  # é
"api_key" = 'lit"eral'
key.token = "short"
credentials = [ "listsecret11", { user = "listsecret22" } ]
pin_passcode = 12345678
text_key = "text"
secret = """
two
lines"""
b = { note = "é", smtpPassword = "\u0061bcdefg", to = "x" }
command = "curl -H 'Authorization: Bearer literaltok7'"
env_token = "${env:TOKEN}"
)",
                               secrets) == R"(# é password = "of a comment"
[hooks.mail]  # "ü"
to = "me"
password = "***"  # é
"api_key" = "***"
key.token = "***"
credentials = [ "***", { user = "***" } ]
pin_passcode = "***"
text_key = "text"
secret = "***"
b = { note = "é", smtpPassword = "***", to = "x" }
command = "curl -H 'Authorization: Bearer ***'"
env_token = "${env:TOKEN}"
)");
  CHECK(secrets.without("listsecret22 abcdefg two\nlines 12345678 literaltok7") == "*** *** *** *** ***");
}

TEST_CASE("a recipe in Lua keeps no secrets that it names") {
  Secrets secrets;
  CHECK(recipe_without_secrets("return { hooks = { mail = { password = \"abcdefg\" } } }", secrets) ==
        "return { hooks = { mail = { password = \"***\" } } }");
}
