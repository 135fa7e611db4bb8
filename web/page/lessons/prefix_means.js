// web/page/lessons/prefix_means.js: a lesson: from the average of all earlier tokens to causal attention.
export const prefixMeans = {
  "id": "prefix_means",
  "title": {"en": "From averages to causal attention", "zh": "从求平均到因果注意力"},
  "source": "examples/prefix_means.cc",
  "steps": [
    {
      "idea": {
        "en": ["The simplest way for tokens to share what they know is to take the average of all of them.",
               "That is attention without scores: the expression 0 * s makes every score 0, so all weights are equal."],
        "zh": ["要让词元互相交流信息，最简单的办法是把所有词元取平均。",
               "这相当于没有分数的注意力：表达式 0 * s 使分数全为 0，权重就都相等。"]
      },
      "state": {"text": "each token looks back and never looks ahead", "to": null, "options": {"score_mod": "0 * s"}},
      "focus": {"step": "weights", "row": 0, "column": 0},
      "code": {
        "cpp": ["const auto v = attn::explain(\"each token looks back and never looks ahead\").step(\"v\").values;",
                "std::cout << v.mean({0}) << \"\\n\";"],
        "python": ["import attn", "",
                   "v = attn.explain(\"each token looks back and never looks ahead\")[\"v\"].values",
                   "print(v.mean(0).round(4))"]
      },
      "shows": {"step": "context", "row": 0},
      "question": {
        "text": {"en": "There are eight tokens with equal weights. How large is each weight?",
                 "zh": "八个词元的权重都相等，每个权重是多少？"},
        "choices": ["0.100", "0.125", "0.800"],
        "answer": 1,
        "check": {"kind": "value", "step": "weights", "row": 0, "column": 0},
        "why": {"en": "Weights add up to 1, so each is 1 / 8.", "zh": "权重之和为 1，所以每个是 1 / 8。"}
      }
    },
    {
      "idea": {
        "en": ["A text is written from left to right, so a token may look at itself and at what came before.",
               "Now each row is the average of the tokens so far."],
        "zh": ["文本从左往右生成，所以一个词元只能看到自己和前面的词元。",
               "这样，每一行就是到目前为止所有词元的平均值。"]
      },
      "state": {"text": "each token looks back and never looks ahead", "to": null,
                "options": {"score_mod": "0 * s", "mask": "causal"}},
      "focus": {"step": "context", "row": 3, "column": 0},
      "code": {
        "cpp": ["const auto v = attn::explain(\"each token looks back and never looks ahead\").step(\"v\").values;",
                "for (std::int64_t t = 0; t < v.size(0); ++t)",
                "  std::cout << v.slice(0, 0, t + 1).mean({0}) << \"\\n\";"],
        "python": ["import attn", "",
                   "v = attn.explain(\"each token looks back and never looks ahead\")[\"v\"].values",
                   "for t in range(len(v)):",
                   "    print(v[: t + 1].mean(0).round(4))"]
      },
      "shows": {"step": "context"},
      "question": {
        "text": {"en": "“back” is the fourth token. How large are the weights in its row?",
                 "zh": "back 是第四个词元，它这一行的权重是多少？"},
        "choices": ["0.125", "0.250", "0.333"],
        "answer": 1,
        "check": {"kind": "value", "step": "weights", "row": 3, "column": 0},
        "why": {"en": "It sees four tokens, itself included, so each has 1 / 4.",
                "zh": "连自己在内它能看到四个词元，各占 1 / 4。"}
      }
    },
    {
      "idea": {
        "en": ["No loop is needed: a lower triangle of ones, each row divided by its sum, holds all these weights.",
               "Then one matrix product takes all the averages at once."],
        "zh": ["其实不需要循环：把全 1 的下三角矩阵逐行除以该行之和，就得到全部权重。",
               "再做一次矩阵乘法，所有平均值就一起算出来了。"]
      },
      "state": {"text": "each token looks back and never looks ahead", "to": null,
                "options": {"score_mod": "0 * s", "mask": "causal"}},
      "focus": {"step": "weights", "row": 2, "column": 0},
      "code": {
        "cpp": ["const auto v = attn::explain(\"each token looks back and never looks ahead\").step(\"v\").values;",
                "const auto ones = attn::tril(attn::ones({8, 8}));",
                "const auto weights = ones / ones.sum({1}, true);",
                "std::cout << weights.matmul(v) << \"\\n\";"],
        "python": ["import attn", "import numpy as np", "",
                   "v = attn.explain(\"each token looks back and never looks ahead\")[\"v\"].values",
                   "ones = np.tril(np.ones((8, 8), np.float32))",
                   "weights = ones / ones.sum(1, keepdims=True)",
                   "print((weights @ v).round(4))"]
      },
      "shows": {"step": "context"},
      "question": {
        "text": {"en": "How many of the eight tokens are masked for the third one?",
                 "zh": "对第三个词元来说，八个词元中有几个被遮住？"},
        "choices": ["3", "5", "6"],
        "answer": 1,
        "check": {"kind": "masked", "step": "weights", "row": 2},
        "why": {"en": "It sees three and does not see the five that follow.", "zh": "它能看到三个，后面的五个看不到。"}
      }
    },
    {
      "idea": {
        "en": ["Attention masks before the softmax: the score of a masked pair counts as -∞.",
               "Since e^-∞ is 0, such a key gets the weight 0."],
        "zh": ["注意力在 softmax 之前加掩码：被遮住的位置，分数记为 −∞。",
               "e 的 −∞ 次方等于 0，所以这些键的权重为 0。"]
      },
      "state": {"text": "each token looks back and never looks ahead", "to": null,
                "options": {"score_mod": "0 * s", "mask": "causal"}},
      "focus": {"step": "mask", "row": 1, "column": 1},
      "code": {
        "cpp": ["const auto v = attn::explain(\"each token looks back and never looks ahead\").step(\"v\").values;",
                "const auto q = attn::zeros({8, 2}), k = attn::zeros({8, 2});",
                "std::cout << attn::attention(q, k, v, {.mask = attn::Mask::causal()}).output << \"\\n\";"],
        "python": ["import attn", "import numpy as np", "",
                   "v = attn.explain(\"each token looks back and never looks ahead\")[\"v\"].values",
                   "zeros = np.zeros((8, 2), np.float32)",
                   "print(attn.attention(zeros, zeros, v, mask=\"causal\").round(4))"]
      },
      "shows": {"step": "context"},
      "question": {
        "text": {"en": "The first token sees only itself. What weight does it give itself?",
                 "zh": "第一个词元只能看到自己，它给自己的权重是多少？"},
        "choices": ["0.0", "0.5", "1.0"],
        "answer": 2,
        "check": {"kind": "value", "step": "weights", "row": 0, "column": 0},
        "why": {"en": "A row adds up to 1, and there is nobody else to share with.",
                "zh": "每行之和为 1，没有别的词元来分。"}
      }
    },
    {
      "idea": {
        "en": ["Equal weights ignore what the tokens say, so now the scores q · k decide again.",
               "The mask stays: later tokens are invisible, however well they would match."],
        "zh": ["权重都相等，就没有考虑词元的内容；现在重新由分数 q · k 来决定权重。",
               "掩码仍然有效：后面的词元再匹配也看不到。"]
      },
      "state": {"text": "each token looks back and never looks ahead", "to": null, "options": {"mask": "causal"}},
      "focus": {"step": "weights", "row": 3, "column": 2},
      "code": {
        "cpp": ["const auto run = attn::explain(\"each token looks back and never looks ahead\");",
                "const auto q = run.step(\"q\").values, k = run.step(\"k\").values, v = run.step(\"v\").values;",
                "const auto result = attn::attention(q, k, v, {.mask = attn::Mask::causal(),",
                "                                              .weights = attn::Weights::full});",
                "std::cout << result.output << \"\\n\";"],
        "python": ["import attn", "",
                   "run = attn.explain(\"each token looks back and never looks ahead\")",
                   "q, k, v = (run[name].values for name in \"qkv\")",
                   "output, weights = attn.attention(q, k, v, mask=\"causal\", weights=\"full\")",
                   "print(output.round(4))"]
      },
      "shows": {"step": "context"},
      "question": {
        "text": {"en": "The first “looks” scores “each” -0.9456, “token” 2.5003, itself 2.4542. Which key wins?",
                 "zh": "第一个 looks 缩放后的分数是：each -0.9456，token 2.5003，自己 2.4542。哪个键的权重最大？"},
        "choices": ["each", "token", "looks"],
        "answer": 1,
        "check": {"kind": "largest", "step": "weights", "row": 2},
        "why": {"en": "“token”, but only just: 0.5033 against 0.4806. Close scores get close weights.",
                "zh": "是 token，但优势很小：0.5033 对 0.4806。分数接近，权重也接近。"}
      }
    },
    {
      "idea": {
        "en": ["The word “looks” occurs twice, and both times it has the same vector, hence the same query.",
               "But it stands at two places: it is the third token and the seventh."],
        "zh": ["looks 出现了两次，两次的向量相同，所以查询也相同。", "但它出现在两个位置：第三个和第七个词元。"]
      },
      "state": {"text": "each token looks back and never looks ahead", "to": null, "options": {"mask": "causal"}},
      "focus": {"step": "context", "row": 6, "column": 0},
      "code": {
        "cpp": ["const auto run = attn::explain(\"each token looks back and never looks ahead\");",
                "const auto q = run.step(\"q\").values, k = run.step(\"k\").values, v = run.step(\"v\").values;",
                "for (const std::int64_t seen : {3, 7})",
                "  std::cout << attn::attention(q.slice(0, 2, 3), k.slice(0, 0, seen), v.slice(0, 0, seen)).output",
                "            << \"\\n\";"],
        "python": ["import attn", "",
                   "run = attn.explain(\"each token looks back and never looks ahead\")",
                   "q, k, v = (run[name].values for name in \"qkv\")",
                   "for seen in 3, 7:",
                   "    print(attn.attention(q[2:3], k[:seen], v[:seen]).round(4))"]
      },
      "shows": {"step": "context", "row": 6},
      "question": {
        "text": {"en": "Will the two rows of “looks” have the same context?", "zh": "两个 looks 的上下文向量相同吗？"},
        "choices": [{"en": "Yes", "zh": "相同"}, {"en": "No", "zh": "不同"}],
        "answer": 1,
        "check": {"kind": "other_rows", "step": "context", "row": 2, "as": 6},
        "why": {"en": "The second one sees seven tokens, the first three. Without the mask they would be the same.",
                "zh": "第二个能看到七个词元，第一个只能看到三个。去掉掩码，两者就相同了。"}
      }
    },
    {
      "idea": {
        "en": ["If the numbers of q and k have variance 1, a dot product of 16 of them has variance 16.",
               "The scaled score is divided by √16 = 4, so that its variance is 1 again."],
        "zh": ["如果 q、k 各分量的方差为 1，16 维的点积方差就是 16。",
               "缩放打分再除以 √16 = 4，让方差回到 1。"]
      },
      "state": {"text": "each token looks back and never looks ahead", "to": null,
                "options": {"mask": "causal", "score": "dot", "dim": 16, "dk": 16}},
      "focus": {"step": "weights", "row": 2, "column": 1},
      "code": {
        "cpp": ["attn::manual_seed(0);",
                "const auto a = attn::randn({4, 8, 16}), b = attn::randn({4, 8, 16});",
                "std::cout << \"variance \" << a.matmul(b.transpose(-2, -1)).var() << \"\\n\";",
                "const std::string text = \"each token looks back and never looks ahead\";",
                "const auto run = attn::explain(text, {.dim = 16, .dk = 16});",
                "const auto q = run.step(\"q\").values, k = run.step(\"k\").values, v = run.step(\"v\").values;",
                "const auto score = attn::Score::dot();",
                "const auto mask = attn::Mask::causal();",
                "std::cout << attn::attention(q, k, v, {.score = score, .mask = mask}).output << \"\\n\";"],
        "python": ["import attn", "import numpy as np", "",
                   "a, b = np.random.default_rng(0).standard_normal((2, 4, 8, 16))",
                   "print(\"variance\", np.var(a @ b.swapaxes(1, 2)))",
                   "run = attn.explain(\"each token looks back and never looks ahead\", dim=16, dk=16)",
                   "q, k, v = (run[name].values for name in \"qkv\")",
                   "print(attn.attention(q, k, v, score=\"dot\", mask=\"causal\").round(4))"]
      },
      "shows": {"step": "context"},
      "question": {
        "text": {"en": "Not scaled, the first “looks” gives “token” the weight 1.0000. And scaled?",
                 "zh": "不缩放时，第一个 looks 给 token 的权重是 1.0000。缩放之后呢？"},
        "choices": [{"en": "It falls", "zh": "变小"}, {"en": "It stays 1.0000", "zh": "还是 1.0000"}],
        "answer": 0,
        "check": {"kind": "larger", "step": "weights", "row": 2, "column": 1, "with": {"score": "scaled_dot"}},
        "why": {"en": "It falls to 0.9253: smaller gaps between scores leave something for the others. Try it.",
                "zh": "降到 0.9253：分数差距变小，其他键也能分到一些权重。不妨试一试。"}
      }
    },
    {
      "idea": {
        "en": ["The softmax depends on the size of the scores, not only on their order.",
               "A temperature of 0.1 is the same as scores ten times as large."],
        "zh": ["softmax 的结果取决于分数的大小，而不只是大小顺序。", "温度取 0.1，相当于把所有分数放大到 10 倍。"]
      },
      "state": {"text": "each token looks back and never looks ahead", "to": null,
                "options": {"mask": "causal", "temperature": 0.1}},
      "focus": {"step": "weights", "row": 7, "column": 5},
      "code": {
        "cpp": ["const auto run = attn::explain(\"each token looks back and never looks ahead\");",
                "const auto q = run.step(\"q\").values, k = run.step(\"k\").values, v = run.step(\"v\").values;",
                "const auto mask = attn::Mask::causal();",
                "std::cout << attn::attention(q, k, v, {.mask = mask, .temperature = 0.1}).output << \"\\n\";"],
        "python": ["import attn", "",
                   "run = attn.explain(\"each token looks back and never looks ahead\")",
                   "q, k, v = (run[name].values for name in \"qkv\")",
                   "print(attn.attention(q, k, v, mask=\"causal\", temperature=0.1).round(4))"]
      },
      "shows": {"step": "context"},
      "question": {
        "text": {"en": "At temperature 1, “ahead” gives “never” its largest weight, 0.1485. At 0.1 it is ...",
                 "zh": "温度为 1 时，ahead 给 never 的权重最大，是 0.1485。温度为 0.1 时，这个权重会："},
        "choices": [{"en": "larger", "zh": "变大"}, {"en": "the same", "zh": "不变"}, {"en": "smaller", "zh": "变小"}],
        "answer": 0,
        "check": {"kind": "larger", "step": "weights", "row": 7, "column": 5, "with": {"temperature": 1}},
        "why": {"en": "It is 0.3536. The closer the temperature gets to 0, the more the best key takes.",
                "zh": "变成 0.3536。温度越接近 0，最匹配的键分到的权重越多。"}
      }
    },
    {
      "idea": {
        "en": ["This is a causal head, as language models have it: scores, scale, mask, softmax, values.",
               "On the sentence of the first lesson it gives the weights that the tutorial prints."],
        "zh": ["这就是语言模型里的因果注意力头：打分、缩放、加掩码、softmax、对值加权求和。",
               "用在第一课的句子上，得到的权重与教程中的一致。"]
      },
      "state": {"text": "Life is short, eat dessert first", "to": null, "options": {"mask": "causal"}},
      "focus": {"step": "weights", "row": 2, "column": 2},
      "code": {
        "cpp": ["const auto run = attn::explain(\"Life is short, eat dessert first\");",
                "const auto q = run.step(\"q\").values, k = run.step(\"k\").values, v = run.step(\"v\").values;",
                "std::cout << attn::attention(q, k, v, {.mask = attn::Mask::causal(),",
                "                                       .weights = attn::Weights::full}).weights << \"\\n\";"],
        "python": ["import attn", "",
                   "run = attn.explain(\"Life is short, eat dessert first\")",
                   "q, k, v = (run[name].values for name in \"qkv\")",
                   "output, weights = attn.attention(q, k, v, mask=\"causal\", weights=\"full\")",
                   "print(weights.round(4))"]
      },
      "shows": {"step": "weights"},
      "question": {
        "text": {"en": "Without the mask, “short” gives itself 0.2506. With it, that weight is ...",
                 "zh": "没有掩码时，short 给自己的权重是 0.2506。加上因果掩码后，这个权重会："},
        "choices": [{"en": "larger", "zh": "变大"}, {"en": "the same", "zh": "不变"}, {"en": "smaller", "zh": "变小"}],
        "answer": 0,
        "check": {"kind": "larger", "step": "weights", "row": 2, "column": 2, "with": {"mask": "all"}},
        "why": {"en": "It is 0.4924: what the three later tokens had is shared among those that are left.",
                "zh": "变成 0.4924：后面三个词元原来的权重，按比例分给了剩下的词元。"}
      }
    }
  ]
};
