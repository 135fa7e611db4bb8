// tests/cli/run_command_test.cc: attn run and attn info from the shell.
#include "cli/command.h"
#include "support/golden.h"

#include <attn/attention.h>
#include <attn/ops.h>
#include <attn/random.h>
#include <attn/runtime.h>
#include <attn/safetensors.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>

namespace attn::testing {
namespace {

struct Inputs {
  Tensor q, k, v;
};
Inputs inputs() {
  Generator generator(7);
  const Tensor q = randn({2, 4, 3, 8}, generator), k = randn({2, 2, 5, 8}, generator),
               v = randn({2, 2, 5, 6}, generator);
  return {q, k, v};
}

TEST(RunCommand, RefusesListsWithoutAnEnd) {
  const Folder folder;
  const std::string nested = std::string(300000, '[') + std::string(300000, ']');
  for (const std::string& text : {"{\"q\": [{\"a\": " + nested + "}]}", "{\"scale\": " + nested + "}"}) {
    const Said said = attn_says("run " + folder.write("deep.json", text));
    EXPECT_EQ(said.code, 1);
    EXPECT_NE(said.err.find("deep.json is nested more than 16 deep"), std::string::npos) << said.err;
  }
}

TEST(RunCommand, HasAttentionsBitsFromSafetensors) {
  const Folder folder;
  const Inputs in = inputs();
  const Tensor lengths = tensor<std::int64_t>({5, 4});
  save_safetensors(folder.file("in.safetensors"), {{"q", in.q}, {"k", in.k}, {"v", in.v}, {"key_lengths", lengths}},
                   {{"mask", "causal(bottom_right)"}, {"weights", "full"}, {"format", "pt"}});
  const Said said = attn_says("run " + folder.file("in.safetensors") + " --out " + folder.file("out.safetensors"));
  ASSERT_EQ(said.code, 0) << said.err;
  EXPECT_EQ(said.out, "");
  AttentionOptions options;
  options.mask = Mask::causal(Align::bottom_right);
  options.key_lengths = lengths;
  options.weights = Weights::full;
  const AttentionResult result = attention(in.q, in.k, in.v, options);
  const Safetensors out = load_safetensors(folder.file("out.safetensors"));
  EXPECT_TRUE(bits_equal(out.at("output"), result.output));
  EXPECT_TRUE(bits_equal(out.at("logsumexp"), result.logsumexp));
  EXPECT_TRUE(bits_equal(out.at("weights"), result.weights));
  EXPECT_TRUE(attn_says("run " + folder.file("in.safetensors") + " --out -").out ==
              content_of(folder.file("out.safetensors")));
}

TEST(RunCommand, ReadsBlocksOfKeys) {
  const Folder folder;
  const Inputs in = inputs();
  const Tensor blocks = tensor<std::int64_t>({0, 2, 1, -1}, {1, 1, 2, 2});
  const Tensor expected = attention(in.q, in.k, in.v, {.mask = Mask::blocks(blocks, 2)}).output;
  const auto run = [&](const std::map<std::string, std::string>& settings, const std::string& options) {
    save_safetensors(folder.file("in.safetensors"), {{"q", in.q}, {"k", in.k}, {"v", in.v}, {"blocks", blocks}},
                     {settings.begin(), settings.end()});
    return attn_says("run " + folder.file("in.safetensors") + " --out " + folder.file("out.safetensors") + options);
  };
  for (const auto& [size, option] : {std::pair{"2", ""}, {"2,2", ""}, {"9", " --block-size '2, 2'"}}) {
    const Said said = run({{"block_size", size}}, option);
    ASSERT_EQ(said.code, 0) << said.err;
    EXPECT_TRUE(bits_equal(load_safetensors(folder.file("out.safetensors")).at("output"), expected)) << size;
  }
  EXPECT_NE(run({}, "").err.find("blocks, the indices, and block_size go together"), std::string::npos);
  EXPECT_NE(run({{"block_size", "1"}}, "").err.find("the mask blocks has indices of shape [1, 1, 2, 2]"),
            std::string::npos);
  for (const char* wrong : {"x", "2,", "2,2,2", "0", "", "-1", "2 3x"}) {
    const Said said = run({{"block_size", wrong}}, "");
    EXPECT_EQ(said.code, 1) << wrong;
    EXPECT_NE(said.err.find("is not understood; one whole number is needed, or two: rows,keys"), std::string::npos)
        << wrong << said.err;
  }
  const std::string json = folder.write("call.json", R"({"q": [[1], [2]], "k": [[1], [0]], "v": [[1], [3]],
      "blocks": [[[[0], [1]]]], "block_size": [1, 1]})");
  const Said said = attn_says("run " + json + " --json");
  ASSERT_EQ(said.code, 0) << said.err;
  EXPECT_EQ(nlohmann::json::parse(said.out).at("output").at("values"), nlohmann::json::parse("[[1], [3]]")) << said.out;
}

TEST(RunCommand, ReturnsTheWeightsAskedFor) {
  const Folder folder;
  const Inputs in = inputs();
  const std::string file = folder.file("in.safetensors");
  save_safetensors(file, {{"q", in.q}, {"k", in.k}, {"v", in.v}});
  const std::pair<std::string, Weights> kinds[] = {{"column_sums", Weights::column_sums},
                                                   {"rows(1, 0)", Weights::rows(tensor<std::int64_t>({1, 0}))},
                                                   {"top_k(2)", Weights::top_k(2)}};
  for (const auto& [name, weights] : kinds) {
    const Said said =
        attn_says("run " + file + " --return-weights '" + name + "' --out " + folder.file("out.safetensors"));
    ASSERT_EQ(said.code, 0) << said.err;
    AttentionOptions options;
    options.weights = weights;
    const AttentionResult result = attention(in.q, in.k, in.v, options);
    const Safetensors out = load_safetensors(folder.file("out.safetensors"));
    EXPECT_TRUE(bits_equal(out.at("weights"), result.weights)) << name;
    EXPECT_EQ(out.find("weight_keys") != nullptr, result.weight_keys.defined());
    if (result.weight_keys.defined()) { EXPECT_TRUE(bits_equal(out.at("weight_keys"), result.weight_keys)); }
  }
  const auto mistake = [&](const std::string& weights) {
    return attn_says("run " + file + " --return-weights '" + weights + "'").err;
  };
  EXPECT_NE(mistake("rows").find("rows take their numbers, rows(0, 5)"), std::string::npos);
  EXPECT_NE(mistake("full(3)").find("the others nothing"), std::string::npos);
  EXPECT_NE(mistake("top_k(1, 2)").find("top_k takes one number"), std::string::npos);
  EXPECT_NE(mistake("rows(x)").find("must be a whole number, not \"x\""), std::string::npos);
  EXPECT_NE(mistake("rows(99)").find("row 0 of weights is 99"), std::string::npos);
}

TEST(RunCommand, ReadsAndWritesJson) {
  const Folder folder;
  const std::string file = folder.write("call.json",
                                        R"({"q": [[1, 0]], "k": [[1, 0], [0, 1]],
          "v": {"dtype": "f32", "shape": [2, 2], "values": [1, 2, 3, 4]}, "scale": 0.5})");
  const Said said = attn_says("run " + file + " --json");
  ASSERT_EQ(said.code, 0) << said.err;
  const nlohmann::json document = nlohmann::json::parse(said.out);
  AttentionOptions options;
  options.scale = 0.5;
  const Tensor expected =
      attention(tensor2d({{1, 0}}), tensor2d({{1, 0}, {0, 1}}), tensor2d({{1, 2}, {3, 4}}), options).output;
  EXPECT_TRUE(bits_equal(golden_tensor(document.at("output")), expected));
  EXPECT_NE(attn_says("run " + file).out.find("tensor("), std::string::npos);
  const Said other = attn_says("run " + file + " --scale 2 --json");
  EXPECT_NE(other.out, said.out);
}

TEST(RunCommand, LooksUpTheFilesTensorsInItsExpression) {
  const Folder folder;
  const Inputs in = inputs();
  const Tensor slope = Bias::alibi_slopes(4), bucket = tensor<std::int64_t>({0, 1, 1, 2, 2});
  save_safetensors(folder.file("in.safetensors"),
                   {{"q", in.q}, {"k", in.k}, {"v", in.v}, {"slope", slope}, {"bucket", bucket}});
  const Said said = attn_says("run " + folder.file("in.safetensors") +
                              " --score-mod 's - slope[h] * bucket[j]' --out " + folder.file("out.safetensors"));
  ASSERT_EQ(said.code, 0) << said.err;
  const ScoreTable slopes(slope), buckets(bucket);
  const AttentionResult result = attention(
      in.q, in.k, in.v, {.score_mod = [&](auto s, auto, auto h, auto, auto j) { return s - slopes(h) * buckets(j); }});
  EXPECT_TRUE(bits_equal(load_safetensors(folder.file("out.safetensors")).at("output"), result.output));
  // in JSON: whole numbers, numbers and flags as they are written; a number alone has rank 0
  const std::string file =
      folder.write("call.json",
                   R"json({"q": [[1, 0]], "k": [[1, 0], [0, 1]], "v": [[1], [2]], "c": 0.5, "n": [1, 0],
    "flag": [true, false], "t": [0.25, 3.5],
    "score_mod": "where(flag[j], c * s, t[n[j]])"})json");
  const Said json = attn_says("run " + file + " --json");
  ASSERT_EQ(json.code, 0) << json.err;
  const Tensor expected =
      attention(tensor2d({{1, 0}}), tensor2d({{1, 0}, {0, 1}}), tensor2d({{1}, {2}}),
                {.score_mod = [](auto s, auto, auto, auto, auto j) { return where(j == 0, 0.5 * s, 0.25); }})
          .output;
  EXPECT_TRUE(bits_equal(golden_tensor(nlohmann::json::parse(json.out).at("output")), expected));
}

TEST(RunCommand, ReadsStandardInput) {
  const Folder folder;
  const std::string text = R"({"q": [[1, 0]], "k": [[1, 0], [0, 1]], "v": [[1, 2], [3, 4]]})";
  const Said said = shell("echo '" + text + "' | " + attn_command + " run -");
  EXPECT_EQ(said.out, attn_says("run " + folder.write("call.json", text)).out) << said.err;
  EXPECT_NE(said.out.find("1.6605, 2.6605"), std::string::npos);
}

TEST(RunCommand, MistakesInTheFileAreNamed) {
  const Folder folder;
  struct Mistake {
    const char* content;
    const char* says;
  };
  for (const Mistake& mistake :
       {Mistake{"", "is empty"},
        Mistake{"{", "is not JSON at line 1, column 2"},
        Mistake{"{\n  \"q\": [1,]\n}", "is not JSON at line 2, column 11\n"},
        Mistake{"{\"q\":\n[[1, NaN]]}", "is not JSON at line 2, column 6; write \"nan\", \"inf\""},
        Mistake{"{\"q\": [-Infinity]}", "column 8; write"},
        Mistake{"\x93NUMPY, and more", "is a file of NumPy's; JSON or safetensors is needed"},
        Mistake{"PK\x03\x04, and more", "is a file of NumPy's"},
        Mistake{"\x7f"
                "ELF, or what else",
                "is neither JSON nor safetensors"},
        Mistake{"[1]", "must hold an object"},
        Mistake{R"({"q": [[1]], "k": [[1]]})", "v is missing"},
        Mistake{R"({"q": [[1], [1, 2]], "k": [[1]], "v": [[1]]})", "different length"},
        Mistake{R"({"q": [["x"]], "k": [[1]], "v": [[1]]})", "not a number"},
        Mistake{R"({"qq": [[1]]})", "did you mean"},
        Mistake{R"({"q": [[1]], "k": [[1, 2]], "v": [[1]]})", "attention: "},
        Mistake{R"({"q": [[1]], "k": [[1]], "v": [[1]], "scale": "x"})", "must be a number"},
        Mistake{R"({"q": [[1]], "k": [[1]], "v": [[1]], "key_lengths": [0.5]})",
                "key_lengths holds 0.5; whole numbers are needed"},
        Mistake{R"({"q": [[1]], "k": [[1]], "v": [[1]], "query_start": ["nan"]})",
                "query_start holds nan; whole numbers are needed"},
        Mistake{R"({"q": [[1]], "k": [[1]], "v": [[1]], "attend": [["-inf"]]})",
                "attend holds -inf; true or false is needed"},
        Mistake{R"({"q": [[1e999]], "k": [[1]], "v": [[1]]})", "bad: number overflow parsing '1e999'"},
        Mistake{R"({"q": {"shape": [-1], "values": [1]}, "k": [[1]], "v": [[1]]})",
                "q has the shape [-1]; it must be a list"},
        Mistake{R"({"q": {"shape": [1.5, 1], "values": [1]}, "k": [[1]], "v": [[1]]})",
                "q has the shape [1.5,1]; it must be a list"},
        Mistake{R"({"q": {"shape": [1e30], "values": [1]}, "k": [[1]], "v": [[1]]})",
                "q has the shape [1e+30]; it must be a list"},
        Mistake{R"({"q": {"shape": "1, 1", "values": [1]}, "k": [[1]], "v": [[1]]})",
                "q has the shape \"1, 1\"; it must be a list"},
        Mistake{R"({"q": {"shape": [1, 2], "values": [1]}, "k": [[1]], "v": [[1]]})",
                "q has 1 values; its shape [1, 2] needs another number"},
        Mistake{R"({"q": {"dtyp": "f64", "values": [[1]]}, "k": [[1]], "v": [[1]]})",
                "q has a field \"dtyp\"; the fields are dtype, shape, values"},
        Mistake{R"({"q": [[1]], "k": [[1]], "v": {"dtype": 64, "values": [[1]]}})",
                "run: v: \"64\" is no dtype; there are f32"},
        Mistake{R"({"q": [[1]], "k": [[1]], "v": [[1]], "w": [[2]]})",
                "w is given, but the score is scaled_dot; general takes w"},
        Mistake{R"({"q": [[1]], "k": [[1]], "v": [[1]], "w_q": [[2]], "score": "dot"})",
                "w_q is given, but the score is dot"},
        Mistake{"12345678901234567890", ""},
        Mistake{R"({"q": [[1]], "k": [[1]], "v": [[1]], "mask": "caus("})", "mask"},
        Mistake{R"({"q": [[1]], "k": [[1]], "v": [[1]], "mask": "causal\u0000x"})", "column 7 is a NUL byte"},
        Mistake{R"({"q": [[1]], "k": [[1]], "v": [[1]], "scale": 1, "scale": 2})", "bad has \"scale\" twice"},
        Mistake{R"({"q": {"dtype": "f32", "values": [[1]], "dtype": "f64"}, "k": [[1]], "v": [[1]]})",
                "bad has \"dtype\" twice"},
        Mistake{R"({"q": [[1]], "k": [[1]], "v": [[1]], "slop": [1], "score_mod": "s - slope[h]"})",
                "at \"slope[h]\": there is no tensor slope; there are slop"},
        Mistake{R"({"q": [[1]], "k": [[1]], "v": [[1]], "score_mod": "s - slope[h]"})",
                "bad: score_mod \"s - slope[h]\": column 5, at \"slope[h]\": there is no tensor slope; none is given"},
        Mistake{R"({"q": [[1]], "k": [[1]], "v": [[1]], "weights": "ful"})",
                "bad: weights has no \"ful\"; did you mean full?"},
        Mistake{R"~({"q": [[1]], "k": [[1]], "v": [[1]], "weights": "rows(x)"})~", "bad: weights: rows(x)"},
        Mistake{R"({"q": [[1]], "k": [[1]], "v": [[1]], "score": "dto"})",
                "bad: score has no \"dto\"; did you mean dot?"},
        Mistake{R"({"q": [[1]], "k": [[1]], "v": [[1]], "causal": "maybe"})", "bad: causal has no \"maybe\""},
        Mistake{R"({"q": [[1]], "k": [[1]], "v": [[1]], "mask": "casual"})", "bad: mask \"casual\": column 1"},
        Mistake{R"({"q": [[1]], "k": [[1]], "v": [[1]], "dtype": "f23"})", "bad: dtype: \"f23\" is no dtype"}}) {
    const Said said = attn_says("run " + folder.write("bad", mistake.content));
    EXPECT_EQ(said.code, 1) << mistake.content << said.err;
    EXPECT_NE(said.err.find(mistake.says), std::string::npos) << mistake.content << ": " << said.err;
    EXPECT_EQ(std::count(said.err.begin(), said.err.end(), '\n'), 1) << said.err;
  }
  // The same words on the command line: the command line was not understood.
  const std::string good = folder.write("good", R"({"q": [[1]], "k": [[1]], "v": [[1]]})");
  const std::string general =
      folder.write("general", R"({"q": [[1]], "k": [[1]], "v": [[1]], "score": "general", "w": [[2]]})");
  EXPECT_EQ(attn_says("run " + folder.write("marked", "\xEF\xBB\xBF" + content_of(good))).out,
            attn_says("run " + good).out)
      << "as Windows' editors write it";
  EXPECT_EQ(attn_says("run " + general + " --score dot").out, attn_says("run " + good + " --score dot").out)
      << "asked for instead";
  const std::string table = folder.write("table", R"({"q": [[1]], "k": [[1]], "v": [[1]], "slope": [1]})");
  for (const char* words : {"--return-weights ful", "--score dto", "--mask casual", "--dtype f23",
                            "--score-mod 's - slop[h]'", "--score-mod 's -'"}) {
    const Said said = attn_says("run " + good + " " + words);
    EXPECT_EQ(said.code, 2) << words << said.err;
    EXPECT_TRUE(said.err.starts_with("attn run: --")) << said.err;
  }
  EXPECT_NE(
      attn_says("run " + table + " --score-mod 's - slop[h]'").err.find("there is no tensor slop; there are slope"),
      std::string::npos);
  const Inputs in = inputs();
  save_safetensors(folder.file("in.safetensors"), {{"q", in.q}, {"k", in.k}, {"v", in.v}});
  const std::string whole = content_of(folder.file("in.safetensors"));
  std::string bytes = whole;
  bytes.replace(bytes.find("F32\","), 5, "U8\", ");
  const std::string dtype = attn_says("run " + folder.write("bytes.safetensors", bytes)).err;
  EXPECT_NE(dtype.find("bytes.safetensors: parse_safetensors: tensor"), std::string::npos) << dtype;
  for (const std::size_t size : {std::size_t{4}, std::size_t{8}, std::size_t{60}, whole.size() - 1}) {
    const Said said = attn_says("run " + folder.write("cut.safetensors", whole.substr(0, size)));
    EXPECT_EQ(said.code, 1) << size;
    EXPECT_EQ(std::count(said.err.begin(), said.err.end(), '\n'), 1) << said.err;
  }
}

TEST(RunCommand, MetadataThatIsNoOptionIsNamed) {
  const Folder folder;
  const Inputs in = inputs();
  const auto run_with = [&](const std::string& name) {
    save_safetensors(folder.file("in.safetensors"), {{"q", in.q}, {"k", in.k}, {"v", in.v}}, {{name, "1"}});
    return attn_says("run " + folder.file("in.safetensors"));
  };
  EXPECT_NE(run_with("temprature").err.find("there is no \"temprature\"; did you mean temperature?"),
            std::string::npos);
  EXPECT_EQ(run_with("window").code, 1);
  for (const char* foreign : {"format", "modelspec.title"}) EXPECT_EQ(run_with(foreign).code, 0) << foreign;
}

TEST(InfoCommand, SaysWhatTheLibrarySays) {
  const nlohmann::json document = nlohmann::json::parse(attn_says("info --json").out);
  EXPECT_EQ(document.at("version"), version());
  EXPECT_EQ(document.at("cpu"), info().cpu);
  EXPECT_EQ(document.at("targets").get<std::vector<std::string>>(), info().targets);
  EXPECT_NE(attn_says("info").out.find("attn " + version()), std::string::npos);
  EXPECT_EQ(attn_says("info", "ATTN_TARGET=nonsense").code, 1);
}

}  // namespace
}  // namespace attn::testing
