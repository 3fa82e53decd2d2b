// Secrets: which names have them, and that no text keeps their values.
#include "runner/base/secrets.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <map>

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
                           "apikey",
                           "api_keys",
                           "access-tokens",
                           "db_passwords",
                           "auth_header",
                           "SLURM_JWT"})
    CHECK((is_secret_name(name) ? "" : name) == std::string());
  for (const char* name : {"tokenizer",    "tokens",    "max_new_tokens", "key",         "key_bias",
                           "n_kv_heads",   "keys",      "pad_token",      "eos_token",   "mask_token",
                           "pad_token_id", "text_key",  "image_key",      "public_key",  "PWD",
                           "OLD_PWD",      "author",    "authors",        "monitor_key", "global_batch_size",
                           "secretary",    "max_steps", "query_key_norm", "passes",      "sort_keys",
                           "num_tokens",   ""})
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

TEST_CASE("below a secret name, all texts and numbers of lists and tables are secrets") {
  Secrets secrets;
  std::vector<std::string> keys;
  const json config = {{"credentials", {"listsecret11", {{"user", "listsecret22"}, {"port", 12}}}},
                       {"api_keys", "pluralsecret1"},
                       {"password", 98765432},
                       {"auth_timeout", 3000000},
                       {"password_of", {{"a", "${env:A}"}, {"on", true}}}};
  CHECK(secrets.take_from(config, keys) == json{{"credentials", {"***", {{"user", "***"}, {"port", 12}}}},
                                                {"api_keys", "***"},
                                                {"password", "***"},
                                                {"auth_timeout", 3000000},
                                                {"password_of", {{"a", "${env:A}"}, {"on", true}}}});
  CHECK(keys == std::vector<std::string>{"api_keys", "credentials", "password"});
  CHECK(secrets.without("listsecret11 listsecret22 pluralsecret1 98765432 3000000") == "*** *** *** *** 3000000");
}

TEST_CASE("a value that has another one as a part leaves nothing of it, also in keys") {
  Secrets secrets;
  secrets.add("cdefgh");
  secrets.add("abcdefghij");
  CHECK(secrets.without("abcdefghij cdefgh") == "*** ***");
  CHECK(secrets.json_without(json{{"abcdefghij", {{"x cdefgh", 1}}}}) == json{{"***", {{"x ***", 1}}}});
}

TEST_CASE("a secret beside the reference to a variable is one") {
  Secrets secrets;
  std::vector<std::string> keys;
  const json config = {{"a", {{"token", "${env:USER}:s3cr3t-value"}}},
                       {"b", {{"token", "${env:TOKEN}"}}},
                       {"c", {{"authorization", "Bearer ${env:TOKEN:-none}"}}}};
  CHECK(secrets.take_from(config, keys) == json{{"a", {{"token", "***"}}},
                                                {"b", {{"token", "${env:TOKEN}"}}},
                                                {"c", {{"authorization", "Bearer ${env:TOKEN:-none}"}}}});
  CHECK(keys == std::vector<std::string>{"a.token"});
}

TEST_CASE("tokens are known by their form") {
  const auto taken = [](const std::string& text) { return Secrets().take_from(text); };
  const std::string digits = "0123456789abcdefghijABCDEFGHIJ012345";
  for (const std::string& token :
       std::vector<std::string>{"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", "ghp_" + digits, "hf_" + digits,
                                "sk-ant-api03-" + digits, "AKIA0123456789ABCDEF", "xoxb-123456789012-abcdefgh"})
    CHECK(taken("use " + token + ", please") == "use ***, please");
  for (const std::string& same : std::vector<std::string>{"sk-learn-pipelines-of-many-kinds", "hf_transfer", "eyJust",
                                                          "/data/hf_" + digits, "risk-0123456789abcdefghij0"})
    CHECK(taken(same) == same);
}

TEST_CASE("a value is found in its escaped form, too") {
  Secrets secrets;
  secrets.add("ab\"cd\\efgh");
  CHECK(secrets.without("password = \"ab\\\"cd\\\\efgh\" # and 'ab\"cd\\efgh'") == "password = \"***\" # and '***'");
}

TEST_CASE("commands and notes keep no tokens, and stay commands and notes") {
  const auto taken = [](const std::string& text) { return Secrets().take_from(text); };
  CHECK(taken("curl -H 'Authorization: Bearer literaltok7' -d @- there") ==
        "curl -H 'Authorization: Bearer ***' -d @- there");
  CHECK(taken("curl -H 'Authorization: Basic dXNlcjpwYXNz=' there") == "curl -H 'Authorization: Basic ***' there");
  CHECK(taken("curl -u me:geheim there; curl --user=me:geheim there") ==
        "curl -u me:*** there; curl --user=me:*** there");
  CHECK(taken("API_KEY=abc123 send --to me -H 'X-Api-Key: k1'") == "API_KEY=*** send --to me -H 'X-Api-Key: ***'");
  CHECK(taken("send 'https:/there?a=1&token=abc&b=2'") == "send 'https:/there?a=1&token=***&b=2'");
  CHECK(taken("{password = \"a b\", \"api_key\": \"c\"}") == "{password = \"***\", \"api_key\": \"***\"}");
  for (const char* same : {"curl -H \"Authorization: Bearer ${env:TOKEN}\"", "curl -u me:$PASSWORD there",
                           "the bearer of news, with a bearer token", "docker run -u 1000:1000 x", "max_tokens=5",
                           "auth: see the wiki", "add_special_token=True", "API_KEY=$(cat key) send", "if token==x"})
    CHECK(taken(same) == same);
  Secrets secrets;
  std::vector<std::string> keys;
  const json config = {{"logging", {{"notify", {{{"command", "send --header 'Authorization: Bearer literaltok7'"}}}}}}};
  CHECK(secrets.take_from(config, keys)["logging"]["notify"][0]["command"] ==
        "send --header 'Authorization: Bearer ***'");
  CHECK(keys == std::vector<std::string>{"logging.notify.command"});
  CHECK(secrets.without("literaltok7 failed") == "*** failed");
}

TEST_CASE("passwords of URLs end at the last @ of the word, and tokens stand alone") {
  const std::string scheme = "https:/";
  CHECK(without_url_passwords(scheme + "/user:p@ss/word@host x") == scheme + "/user:***@host x");
  CHECK(without_url_passwords(scheme + "/user:pa/ss@host") == scheme + "/user:***@host");
  CHECK(without_url_passwords(scheme + "/ghp_0123456789abcdefghij@there/x") == scheme + "/***@there/x");
  for (const char* same : {"/me@there/x", "/there:8080/pkg@v1", "/there/a@b:c", "/me:${env:PW}@there", "/there"})
    CHECK(without_url_passwords(scheme + same) == scheme + same);
}

TEST_CASE("a command line keeps no secrets") {
  Secrets secrets;
  CHECK(secrets.take_from(std::vector<std::string>{
            "runner", "run", "a.toml", "--set", "hooks.mail.password=\"pass-word-1\"", "train.max_steps=3", "--api-key",
            "k-e-y-12", "--token-file", "f", "--hf-token=t-o-k-e-n", "data.tokenizer=bytes"}) ==
        std::vector<std::string>{"runner", "run", "a.toml", "--set", "hooks.mail.password=***", "train.max_steps=3",
                                 "--api-key", "***", "--token-file", "f", "--hf-token=***", "data.tokenizer=bytes"});
  CHECK(
      secrets.take_from(std::vector<std::string>{"--set=hooks.m.password=first1", "hooks.m={password=\"second2\"}"}) ==
      std::vector<std::string>{"--set=hooks.m.password=***", "hooks.m={password=\"***\"}"});
  CHECK(secrets.without("first1 second2") == "*** ***");
  CHECK(secrets.without("pass-word-1 k-e-y-12 t-o-k-e-n") == "*** *** ***");
  const std::string scheme = "ssh:/";
  CHECK(secrets.without(scheme + "/me:geheim@there/x and " + scheme + "/there/a@b:c") ==
        scheme + "/me:***@there/x and " + scheme + "/there/a@b:c");
}

TEST_CASE("the environment's secrets are known, and its settings, paths and plain words are none") {
  const std::map<std::string, std::string> variables = {{"MY_SERVICE_API_KEY", "value-of-the-environment"},
                                                        {"MY_AUTH_SOCK", "/run/socket"},
                                                        {"AWS_SECRET_ACCESS_KEY", "/abcDEF0123456789abcdef"},
                                                        {"APPLICATION_CREDENTIALS", "/etc/no-such-file.json"},
                                                        {"CREDENTIAL_HELPER", "single"},
                                                        {"CRED_CREDENTIAL_CHAIN", "default-1"},
                                                        {"APP_AUTH_MODE", "tiny-2.txt"},
                                                        {"DB_PASSWORD", "weight_decay"},
                                                        {"SLACK_WEBHOOK_URL",
                                                         "https:/"
                                                         "/hooks/T0/B1"}};
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  Secrets secrets;
  secrets.add_environment();
  for (const auto& [name, value] : variables) ::unsetenv(name.c_str());
  CHECK(secrets.without("value-of-the-environment /run/socket") == "*** /run/socket");
  CHECK(secrets.without("/abcDEF0123456789abcdef /etc/no-such-file.json https:/"
                        "/hooks/T0/B1") == "*** /etc/no-such-file.json ***");
  for (const char* same : {"single", "default-1", "tiny-2.txt", "weight_decay = 0.01"})
    CHECK(secrets.without(same) == same);
}
