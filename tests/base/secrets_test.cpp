// Secrets: which names have them, and that no text keeps their values.
#include "runner/base/secrets.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>

using namespace runner;
using nlohmann::json;

TEST_CASE("names with secrets are told from names with tokens and keys of other kinds") {
  for (const char* name : {"WANDB_API_KEY",
                           "OPENAI_API_KEY",
                           "HF_TOKEN",
                           "hf-token",
                           "token",
                           "PGPASSWORD",
                           "password",
                           "smtpPassword",
                           "db.passwd",
                           "client_secret",
                           "AWS_SECRET_ACCESS_KEY",
                           "aws_access_key_id",
                           "credentials",
                           "auth",
                           "Authorization",
                           "auth_header",
                           "private_key",
                           "slack_webhook_url",
                           "DB_PWD",
                           "apikey"})
    CHECK((is_secret_name(name) ? "" : name) == std::string());
  for (const char* name : {"tokenizer",    "tokens",    "max_new_tokens", "key",         "key_bias",
                           "n_kv_heads",   "keys",      "pad_token",      "eos_token",   "mask_token",
                           "pad_token_id", "text_key",  "image_key",      "public_key",  "PWD",
                           "OLD_PWD",      "author",    "authors",        "monitor_key", "global_batch_size",
                           "secretary",    "max_steps", "query_key_norm", "passes",      ""})
    CHECK((is_secret_name(name) ? name : "") == std::string());
}

TEST_CASE("secrets of an object are replaced, and left out of other texts") {
  Secrets secrets;
  std::vector<std::string> keys;
  const json config = {{"hooks", {{"mail", {{"password", "hunter2-hunter2"}, {"to", "me"}, {"api_key", ""}}}}},
                       {"logging", {{{"token_url", "x"}, {"hf_token", "abc"}}}},
                       {"seed", 7}};
  CHECK(secrets.take_from(config, keys) ==
        json{{"hooks", {{"mail", {{"password", "***"}, {"to", "me"}, {"api_key", ""}}}}},
             {"logging", {{{"token_url", "x"}, {"hf_token", "***"}}}},
             {"seed", 7}});
  CHECK(keys == std::vector<std::string>{"hooks.mail.password", "logging.hf_token"});
  CHECK(secrets.without("login with hunter2-hunter2, hunter2-hunter2!") == "login with ***, ***!");
  CHECK(secrets.without("abc") == "abc");  // too short to be searched for
  CHECK(secrets.json_without(json{{"a", {"x hunter2-hunter2", 1}}}) == json{{"a", {"x ***", 1}}});
}

TEST_CASE("a command line keeps no secrets") {
  Secrets secrets;
  CHECK(secrets.take_from(std::vector<std::string>{
            "runner", "run", "a.toml", "--set", "hooks.mail.password=\"pass-word-1\"", "train.max_steps=3", "--api-key",
            "k-e-y-12", "--token-file", "f", "--hf-token=t-o-k-e-n", "data.tokenizer=bytes"}) ==
        std::vector<std::string>{"runner", "run", "a.toml", "--set", "hooks.mail.password=***", "train.max_steps=3",
                                 "--api-key", "***", "--token-file", "f", "--hf-token=***", "data.tokenizer=bytes"});
  CHECK(secrets.without("pass-word-1 k-e-y-12 t-o-k-e-n") == "*** *** ***");
  const std::string scheme = "ssh:/";
  CHECK(secrets.without(scheme + "/me:geheim@there/x and " + scheme + "/there/a@b:c") ==
        scheme + "/me:***@there/x and " + scheme + "/there/a@b:c");
}

TEST_CASE("the environment's secrets are known") {
  ::setenv("MY_SERVICE_API_KEY", "value-of-the-environment", 1);
  ::setenv("MY_AUTH_SOCK", "/run/socket", 1);
  Secrets secrets;
  secrets.add_environment();
  ::unsetenv("MY_SERVICE_API_KEY");
  ::unsetenv("MY_AUTH_SOCK");
  CHECK(secrets.without("value-of-the-environment /run/socket") == "*** /run/socket");
}
