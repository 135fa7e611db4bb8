// tests/attention/mask_test.cc: every mask against a plain boolean matrix; its text, its picture, its tiles, its
// errors.
#include <attn/attention.h>
#include <attn/ops.h>
#include <attn/random.h>

#include "attention/lower.h"
#include "kernels/attention/mask/mask_program.h"
#include "support/errors.h"
#include "support/golden.h"
#include "support/random_shapes.h"

#include <gtest/gtest.h>

#include <limits>

namespace attn::testing {
namespace {

/// What a mask should mean: sizes, lengths, and a rule for each pair, positions already worked out.
struct World {
  std::int64_t batch, heads, rows, keys;
  std::vector<std::int64_t> query_lengths, key_lengths, key_start, query_start;  // as given; query_start may be empty

  Lengths lengths() const {
    Lengths lengths{
        tensor<std::int64_t>(query_lengths), tensor<std::int64_t>(key_lengths), tensor<std::int64_t>(key_start), {}};
    if (!query_start.empty()) lengths.query_start = tensor<std::int64_t>(query_start);
    return lengths;
  }
  std::int64_t position(std::int64_t b, std::int64_t i, Align align) const {
    const auto n = static_cast<std::size_t>(b);
    if (!query_start.empty()) return i + query_start[n];
    return align == Align::bottom_right ? i + key_lengths[n] - key_start[n] - query_lengths[n] : i;
  }
  bool exists(std::int64_t b, std::int64_t i, std::int64_t j) const {
    const auto n = static_cast<std::size_t>(b);
    return i < query_lengths[n] && j >= key_start[n] && j < key_lengths[n];
  }
};

using Rule = std::function<bool(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j)>;
struct Ruled {
  Mask mask;
  Rule rule;
};

World random_world(Random& random) {
  World w{pick(random, 1, 3), pick(random, 1, 3), pick(random, 0, 9), pick(random, 0, 9), {}, {}, {}, {}};
  const bool given = pick(random, 0, 1) == 1, started = pick(random, 0, 2) == 0;
  for (std::int64_t b = 0; b < w.batch; ++b) {
    w.query_lengths.push_back(given ? pick(random, 0, w.rows) : w.rows);
    w.key_lengths.push_back(given ? pick(random, 0, w.keys) : w.keys);
    w.key_start.push_back(given ? pick(random, 0, w.key_lengths.back()) : 0);
    if (started) w.query_start.push_back(pick(random, -3, 5));
  }
  return w;
}

Tensor random_bools(Random& random, const Dims& sizes) {
  Tensor result = empty(sizes, Dtype::boolean);
  for (std::int64_t n = 0; n < result.numel(); ++n) result.data<bool>()[n] = pick(random, 0, 2) != 0;
  return result;
}

Tensor random_integers(Random& random, const Dims& sizes, std::int64_t most) {
  Tensor result = empty(sizes, Dtype::i64);
  for (std::int64_t n = 0; n < result.numel(); ++n) result.data<std::int64_t>()[n] = pick(random, 0, most);
  return result;
}

Ruled random_leaf(Random& random, const World& w) {
  const Align align = pick(random, 0, 1) ? Align::top_left : Align::bottom_right;
  const auto position = [w, align](std::int64_t b, std::int64_t i) { return w.position(b, i, align); };
  const auto key = [w](std::int64_t b, std::int64_t j) { return j - w.key_start[static_cast<std::size_t>(b)]; };
  switch (pick(random, 0, 9)) {
    case 0: return {Mask::causal(align), [=](auto b, auto, auto i, auto j) { return key(b, j) <= position(b, i); }};
    case 1: {
      const std::int64_t left = pick(random, -1, 4), right = pick(random, -1, 4);
      return {Mask::window(left, right, align), [=](auto b, auto, auto i, auto j) {
                const std::int64_t d = key(b, j) - position(b, i);
                return (left < 0 || d >= -left) && (right < 0 || d <= right);
              }};
    }
    case 2: {
      const std::int64_t n = pick(random, 0, 6);
      return {Mask::prefix(n), [=](auto b, auto, auto, auto j) { return key(b, j) < n; }};
    }
    case 3: {
      const Tensor n = random_integers(random, {w.batch}, 6);
      return {Mask::prefix(n), [=](auto b, auto, auto, auto j) { return key(b, j) < n[b].item_int(); }};
    }
    case 4: {
      const bool shared = pick(random, 0, 1);
      const Tensor rows = random_integers(random, shared ? Dims{w.rows} : Dims{w.batch, w.rows}, 2);
      const Tensor keys = random_integers(random, shared ? Dims{w.keys} : Dims{w.batch, w.keys}, 2);
      return {Mask::documents(rows, keys), [=](auto b, auto, auto i, auto j) {
                return (shared ? rows : rows[b])[i].item_int() == (shared ? keys : keys[b])[j].item_int();
              }};
    }
    case 5:
    case 6: {
      const bool attend = pick(random, 0, 1);
      const Dims sizes = random_partner(random, {w.batch, w.heads, w.rows, w.keys});
      const Tensor bools = random_bools(random, sizes);
      return {attend ? Mask::attend(bools) : Mask::block(bools),
              [=](auto b, auto h, auto i, auto j) { return (at_broadcast(bools, {b, h, i, j}) != 0) == attend; }};
    }
    case 7: {
      const Tensor padding = random_bools(random, {w.batch, w.keys});
      return {Mask::key_padding(padding), [=](auto b, auto, auto, auto j) { return padding[b][j].item() == 0; }};
    }
    case 8: {
      const std::int64_t rows = pick(random, 1, 4), keys = pick(random, 1, 4), n = pick(random, 0, 3),
                         blocks = (w.keys + keys - 1) / keys, batch = pick(random, 0, 1) ? w.batch : 1,
                         heads = pick(random, 0, 1) ? w.heads : 1;
      Tensor indices = empty({batch, heads, (w.rows + rows - 1) / rows, n}, Dtype::i64);
      for (std::int64_t x = 0; x < indices.numel(); ++x) indices.data<std::int64_t>()[x] = pick(random, -1, blocks - 1);
      return {
          Mask::blocks(indices, rows, keys), [=](auto b, auto h, auto i, auto j) {
            for (std::int64_t x = 0; x < n; ++x)
              if (at(indices, {batch == 1 ? 0 : b, heads == 1 ? 0 : h, i / rows, x}) == static_cast<double>(j / keys))
                return true;
            return false;
          }};
    }
    default: {
      const bool all = pick(random, 0, 1);
      return {all ? Mask::all() : Mask::none(), [=](auto...) { return all; }};
    }
  }
}

Ruled random_tree(Random& random, const World& w, int depth) {
  if (depth == 0 || pick(random, 0, 4) == 0) return random_leaf(random, w);
  const Ruled a = random_tree(random, w, depth - 1);
  if (pick(random, 0, 3) == 0) return {~a.mask, [a](auto... at) { return !a.rule(at...); }};
  const Ruled b = random_tree(random, w, depth - 1);
  if (pick(random, 0, 1)) return {a.mask & b.mask, [a, b](auto... at) { return a.rule(at...) && b.rule(at...); }};
  return {a.mask | b.mask, [a, b](auto... at) { return a.rule(at...) || b.rule(at...); }};
}

/// As a tensor, from the rule.
Tensor by_rule(const World& w, const Rule& rule) {
  Tensor result = empty({w.batch, w.heads, w.rows, w.keys}, Dtype::boolean);
  bool* to = result.data<bool>();
  for_each_index(result.sizes(),
                 [&](const Dims& at) { *to++ = w.exists(at[0], at[2], at[3]) && rule(at[0], at[1], at[2], at[3]); });
  return result;
}

/// A tile said to be full or empty is; with `exact`, one said to be partial is neither.
void expect_tiles(const World& w, const Mask& mask, const Tensor& dense, bool exact) {
  const ScoreShape shape{"test", w.batch, w.heads, w.rows, w.keys};
  const Lengths lengths = lower_lengths(w.lengths(), shape);
  const LoweredMask lowered = lower_mask(mask, shape, lengths);
  kernels::AttentionProblem problem;
  describe_scores(shape, lengths, problem);
  describe_mask(lowered, problem);
  for (std::int64_t b = 0; b < w.batch; ++b)
    for (std::int64_t i = 0; i < w.rows; i += 2)
      for (std::int64_t j = 0; j < w.keys; j += 3) {
        for (std::int64_t head = 0; head < w.heads; ++head) {
          const kernels::TileRange range{i,    std::min(i + 3, w.rows),       j, std::min(j + 4, w.keys),
                                         head, 1 + (i + j) % (w.heads - head)};
          std::int64_t seen = 0, pairs = 0;
          for (std::int64_t h = head; h < head + range.heads; ++h)
            for (std::int64_t y = range.row_begin; y < range.row_end; ++y)
              for (std::int64_t x = range.key_begin; x < range.key_end; ++x, ++pairs)
                seen += at(dense, {b, h, y, x}) != 0;
          const kernels::Visibility tile = kernels::classify(problem, {.batch = b}, range);
          const kernels::Visibility truth = seen == 0       ? kernels::Visibility::empty
                                            : seen == pairs ? kernels::Visibility::full
                                                            : kernels::Visibility::partial;
          EXPECT_TRUE(tile == truth || (!exact && tile == kernels::Visibility::partial)) << seen << " of " << pairs;
        }
      }
}

TEST(Mask, LeavesAndRandomTreesAreTheirRules) {
  Random random(5);
  for (int n = 0; n < 600; ++n) {
    const World w = random_world(random);
    const Ruled tree = random_tree(random, w, n < 200 ? 0 : 4);
    SCOPED_TRACE(::testing::Message() << n << ": " << tree.mask.to_string() << ", " << w.rows << " x " << w.keys);
    const Tensor expected = by_rule(w, tree.rule);
    ASSERT_TRUE(same_bits(tree.mask.dense(w.batch, w.heads, w.rows, w.keys, w.lengths()), expected));
    expect_tiles(w, tree.mask, expected, false);
  }
}

/// Attention under the tree and under its matrix, and with NaN in every key and value that some row does not see.
TEST(Mask, AttentionUnderARandomTreeHasTheBitsOfItsMatrixAndHiddenNanChangesNone) {
  Random random(7);
  manual_seed(7);
  for (int n = 0; n < 120; ++n) {
    const World w = random_world(random);
    const Ruled tree = random_tree(random, w, n < 30 ? 0 : 4);
    SCOPED_TRACE(::testing::Message() << n << ": " << tree.mask.to_string() << ", " << w.rows << " x " << w.keys);
    const Tensor q = randn({w.batch, w.heads, w.rows, 5}), k = randn({w.batch, w.heads, w.keys, 5}),
                 v = randn({w.batch, w.heads, w.keys, 3});
    const Lengths lengths = w.lengths();
    const auto run = [&](const Tensor& key, const Tensor& value) {
      return attention(q, key, value,
                       {.mask = tree.mask,
                        .query_lengths = lengths.query_lengths,
                        .key_lengths = lengths.key_lengths,
                        .key_start = lengths.key_start,
                        .query_start = lengths.query_start})
          .output;
    };
    const Tensor seen = by_rule(w, tree.rule), clean = run(k, v);
    ASSERT_TRUE(same_bits(clean, attention(q, k, v, {.mask = Mask::attend(seen)}).output));
    for (std::int64_t j = 0; j < w.keys; ++j) {
      const Tensor bad_key = k.clone(), bad_value = v.clone(), sees = seen.select(3, j).unsqueeze(-1);
      bad_key.select(2, j).fill_(std::numeric_limits<double>::quiet_NaN());
      bad_value.select(2, j).fill_(std::numeric_limits<double>::quiet_NaN());
      const Tensor dirty = run(bad_key, bad_value);
      ASSERT_TRUE(same_bits(masked_fill(dirty, sees, 0), masked_fill(clean, sees, 0))) << "key " << j;
      EXPECT_TRUE(same_bits(isnan(dirty), sees.expand(dirty.sizes()).contiguous())) << "key " << j;
    }
  }
}

TEST(Mask, TilesOfBandsAndBlocksAreExact) {
  Random random(6);
  for (int n = 0; n < 200; ++n) {
    const World w = random_world(random);
    const Align align = n % 2 ? Align::top_left : Align::bottom_right;
    for (const Mask& mask :
         {Mask::causal(align), Mask::window(2, 1, align), Mask::window(-1, 0, align), Mask::prefix(3), Mask::none(),
          Mask::blocks(random_integers(random, {1, w.heads, (w.rows + 1) / 2, w.keys > 0 ? 2 : 0}, (w.keys - 1) / 3), 2,
                       3)})
      expect_tiles(w, mask, mask.dense(w.batch, w.heads, w.rows, w.keys, w.lengths()), true);
  }
}

TEST(Mask, DeepTreesNeedAShallowStack) {
  Mask left = Mask::none(), right = Mask::none();
  for (int n = 0; n < 500; ++n) {
    left = (left | Mask::prefix(n % 3)) & Mask::window(n, 1, Align::top_left);
    right = Mask::window(n, 1, Align::top_left) & (Mask::prefix(n % 3) | right);
  }
  EXPECT_TRUE(same_bits(left.dense(1, 1, 4, 4), right.dense(1, 1, 4, 4)));
}

TEST(Mask, TextGoesThereAndBack) {
  for (const char* text : {"all", "none", "causal", "causal(top_left)", "causal(bottom_right) & window(512, 0)",
                           "~(causal | prefix(4)) & none", "causal & ~window(-1, 3, bottom_right) | prefix(2)",
                           "(causal | prefix(1)) & (none | window(0, 0))", "~~causal"})
    EXPECT_EQ(Mask::parse(text).to_string(), text);
  EXPECT_EQ(Mask::parse(" ( causal( top_left ) )|prefix( 2 ) ").to_string(), "causal(top_left) | prefix(2)");
  EXPECT_EQ(Mask().to_string(), "all");
  EXPECT_EQ((Mask::causal() & Mask::all()).to_string(), "causal");
  EXPECT_EQ((~Mask::none()).to_string(), "all");
  EXPECT_EQ((Mask::documents(zeros({4}, Dtype::i64)) & Mask::key_padding(zeros({2, 4}, Dtype::boolean))).to_string(),
            "documents(i64 [4]) & key_padding(bool [2, 1, 1, 4])");
}

TEST(Mask, TextThatIsNotAMaskShowsThePlace) {
  const auto text_of = [](const std::string& text) { return error_of<ValueError>([&] { Mask::parse(text); }); };
  EXPECT_EQ(text_of("causal & windw(3, 0)"),
            "Mask::parse: \"causal & windw(3, 0)\": column 10, at \"windw(3, 0)\": a mask was expected: causal, "
            "window(left, right), prefix(n), all, none");
  EXPECT_EQ(text_of("causal(left)"),
            "Mask::parse: \"causal(left)\": column 8, at \"left)\": top_left or bottom_right was expected");
  EXPECT_EQ(text_of("window(3)"),
            "Mask::parse: \"window(3)\": column 9, at \")\": a comma and the keys to the right were expected");
  EXPECT_EQ(text_of("(causal"), "Mask::parse: \"(causal\": column 8, at the end: a closing parenthesis was expected");
  EXPECT_EQ(text_of("causal causal"),
            "Mask::parse: \"causal causal\": column 8, at \"causal\": an operator, & or |, was expected");
  EXPECT_EQ(text_of("prefix(-1)"),
            "Mask::parse: \"prefix(-1)\": column 8, at \"-1)\": a whole number of at least 0 was expected");
  EXPECT_EQ(text_of(std::string("causal\0&prefix(2)", 17)),
            "Mask::parse: \"causal\": column 7 is a NUL byte; the text must have none");
  EXPECT_EQ(text_of(""),
            "Mask::parse: \"\": column 1, at the end: a mask was expected: causal, window(left, right), prefix(n), "
            "all, none");
  EXPECT_NE(text_of(std::string(100000, '~')).find("more than 1000 terms"), std::string::npos);
  EXPECT_NE(text_of(std::string(100000, '(')).find("it is nested more than 100 deep"), std::string::npos);
}

TEST(Mask, Pictures) {
  EXPECT_EQ(Mask::causal(Align::top_left).print(3, 5), "■ · · · ·\n■ ■ · · ·\n■ ■ ■ · ·\n");
  EXPECT_EQ(Mask::causal(Align::bottom_right).print(3, 5), "■ ■ ■ · ·\n■ ■ ■ ■ ·\n■ ■ ■ ■ ■\n");
  EXPECT_EQ((Mask::window(1, 1) & ~Mask::prefix(1)).print(3, 3), "· ■ ·\n· ■ ■\n· ■ ■\n");
  EXPECT_EQ(Mask::causal().print(2, 2, {.key_start = tensor<std::int64_t>({0, 1})}, 1), "· ■\n· ■\n");
  EXPECT_EQ(Mask::key_padding(tensor<std::int64_t>({0, 1, 1, 0}, {2, 2}).to(Dtype::boolean)).print(1, 2, {}, 1),
            "· ■\n");
}

TEST(Mask, RowsThatSeeNothingAreNamed) {
  const Mask mask = Mask::key_padding(tensor<std::int64_t>({0, 0, 0, 0, 1, 1, 1, 1}, {2, 4}).to(Dtype::boolean));
  EXPECT_EQ(mask.check(2, 3, 4, 4), (std::vector<std::string>{"batch 1, rows 0 to 3 see no key"}));
  EXPECT_EQ(Mask::causal(Align::bottom_right).check(1, 1, 4, 2),
            (std::vector<std::string>{"batch 0, rows 0 to 1 see no key"}));
  EXPECT_EQ(Mask::causal().check(1, 2, 4, 4), std::vector<std::string>{});
  const Mask by_head = Mask::attend(tensor<std::int64_t>({1, 1, 0, 1}, {2, 2, 1}).to(Dtype::boolean));
  EXPECT_EQ(by_head.check(1, 2, 2, 2), (std::vector<std::string>{"batch 0, head 1, row 0 sees no key"}));
  EXPECT_EQ(Mask::none().check(1, 1, 3, 3, {.query_lengths = tensor<std::int64_t>({2})}),
            (std::vector<std::string>{"batch 0, rows 0 to 1 see no key"}));
}

TEST(Mask, Errors) {
  EXPECT_EQ(error_of<ShapeError>([] { Mask::causal().dense(1, 1, 2, 3); }),
            "Mask::dense: causal does not say how 2 rows stand against 3 keys; it needs an alignment, top_left or "
            "bottom_right, as in causal(bottom_right)\n"
            "  top_left    bottom_right\n"
            "  ■ · ·       ■ ■ ·\n"
            "  ■ ■ ·       ■ ■ ■");
  EXPECT_EQ(error_of<ShapeError>([] { Mask::window(1, 1).dense(1, 1, 100, 7); }),
            "Mask::dense: window does not say how 100 rows stand against 7 keys; it needs an alignment, top_left or "
            "bottom_right, as in "
            "window(1, 1, bottom_right)\n"
            "  top_left        bottom_right\n"
            "  ■ ■ · · · · ·   · · · · · · ·\n"
            "  ■ ■ ■ · · · ·   · · · · · · ·\n"
            "  · ■ ■ ■ · · ·   · · · · · · ·\n"
            "  · · ■ ■ ■ · ·   · · · · · · ·\n"
            "  …\n"
            "  · · · · · · ·   · · · ■ ■ ■ ·\n"
            "  · · · · · · ·   · · · · ■ ■ ■\n"
            "  · · · · · · ·   · · · · · ■ ■");
  EXPECT_EQ(error_of<ShapeError>([] { Mask::window(500, -1).dense(1, 1, 1, 1000); }),
            "Mask::dense: window does not say how 1 rows stand against 1000 keys; it needs an alignment, top_left or "
            "bottom_right, as in "
            "window(500, -1, bottom_right)\n"
            "  top_left          bottom_right\n"
            "  ■ ■ ■ ■ … ■ ■ ■   · · · · … ■ ■ ■");
  EXPECT_NO_THROW(Mask::causal().dense(1, 1, 2, 3, {.query_start = tensor<std::int64_t>({1})}));
  EXPECT_EQ(error_of<ValueError>([] { Mask::window(-2, 0); }),
            "Mask::window: left is -2, right is 0; each must be at least 0, or -1 for no limit");
  EXPECT_EQ(error_of<DtypeError>([] { Mask::attend(ones({2})); }),
            "Mask::attend: the tensor is f32; it must be bool (a float mask is added: Bias::dense)");
  for (const Dtype dtype : {Dtype::i64, Dtype::i32}) {  // transformers' masks have 1 for a token
    const std::string given = "the tensor is " + std::string(name_of(dtype)) + "; it must be bool, True = ";
    const std::string instead =
        "; where 1 is a token write Mask::attend(x), with [B, Tk] as [B, 1, 1, Tk], or key_lengths";
    EXPECT_EQ(error_of<DtypeError>([&] { Mask::key_padding(ones({2, 3}, dtype)); }),
              "Mask::key_padding: " + given + "padding" + instead);
    EXPECT_EQ(error_of<DtypeError>([&] { Mask::block(ones({2, 3}, dtype)); }),
              "Mask::block: " + given + "masked" + instead);
    EXPECT_NO_THROW(Mask::attend(ones({2, 3}, dtype)));
  }
  EXPECT_EQ(error_of<ShapeError>([] { Mask::key_padding(zeros({3}, Dtype::boolean)); }),
            "Mask::key_padding: padding has shape [3]; it must be [B, Tk]");
  EXPECT_EQ(error_of<ShapeError>([] { Mask::attend(zeros({2, 3}, Dtype::boolean)).dense(1, 2, 3, 4); }),
            "Mask::dense: the mask attend has shape [2, 3]; it must broadcast to the scores [1, 2, 3, 4]");
  EXPECT_EQ(error_of<ShapeError>([] { Mask::documents(zeros({5}, Dtype::i64)).dense(2, 1, 4, 4); }),
            "Mask::dense: the mask documents has ids of rows of shape [5]; it must be [4] or [2, 4]");
  EXPECT_EQ(error_of<ValueError>([] { Mask::all().dense(2, 1, 4, 4, {.key_lengths = tensor<std::int64_t>({4, 5})}); }),
            "Mask::dense: key_lengths[1] is 5; it must be from 0 to 4, the number of keys");
  EXPECT_EQ(error_of<ShapeError>([] { Mask::all().dense(2, 1, 4, 4, {.key_start = tensor<std::int64_t>({1})}); }),
            "Mask::dense: key_start has shape [1]; it must be [2], one for each batch item");
}

}  // namespace
}  // namespace attn::testing
