// web/page/lessons/einsum_heads.js: a lesson: several heads, written with einsum, and masks that combine.
export const einsumHeads = {
  "id": "einsum_heads",
  "title": {"en": "Several heads, written with einsum", "zh": "多头注意力与 einsum 写法"},
  "source": "examples/einsum_heads.cc",
  "steps": [
    {
      "idea": {
        "en": ["Several heads look at the same text, each with small matrices of its own.",
               "A model with 8 numbers a token and 2 heads gives each head queries of 8 / 2 = 4 numbers."],
        "zh": ["多头注意力让几个头同时看同一段文本，每个头有自己的小矩阵。",
               "模型维数为 8、头数为 2 时，每个头的查询是 8 / 2 = 4 维。"]
      },
      "state": {"text": "to be or not to be", "to": null,
                "options": {"heads": 2, "dim": 8, "dk": 4, "dv": 4, "seed": 3}},
      "focus": {"step": "q", "row": 0, "column": 0, "head": 1},
      "code": {
        "cpp": ["const std::string text = \"to be or not to be\";",
                "const auto run = attn::explain(text, {.heads = 2, .dim = 8, .dk = 4, .dv = 4, .seed = 3});",
                "const auto x = run.step(\"x\").values, w_q = run.parameters[0].values;      // [6, 8], [2, 8, 4]",
                "std::cout << attn::einsum(\"ie,hed->hid\", {x, w_q}) << \"\\n\";"],
        "python": ["import attn",
                   "import numpy as np",
                   "",
                   "run = attn.explain(\"to be or not to be\", heads=2, dim=8, dk=4, dv=4, seed=3)",
                   "x, w_q = run[\"x\"].values, run.parameters[0].values      # [6, 8], [2, 8, 4]",
                   "print(np.einsum(\"ie,hed->hid\", x, w_q).round(4))"]
      },
      "shows": {"step": "q"},
      "question": {
        "text": {
          "en": "Two heads, six tokens, four numbers. What shape does q have?",
          "zh": "两个头，六个词元，每个 4 维。q 的形状是什么？"
        },
        "choices": ["[6, 8]", "[2, 6, 4]", "[2, 4, 6]"],
        "answer": 1,
        "check": {"kind": "shape", "step": "q"},
        "why": {
          "en": "[heads, tokens, numbers]: the 8 numbers of a token are split, not repeated.",
          "zh": "依次是头、词元、维数：每个词元的 8 维分给两个头，而不是复制两份。"
        }
      }
    },
    {
      "idea": {
        "en": ["Einsum writes a product of tensors with letters: a letter missing after the arrow is summed over.",
               "The scores of all heads are ihd,jhd->hij: i for queries, j for keys, h for heads, and d is summed."],
        "zh": ["einsum 用字母表示张量乘法：箭头右边没有的字母，就对它求和。",
               "所有头的分数写作 ihd,jhd->hij：i 是查询，j 是键，h 是头，对 d 求和。"]
      },
      "state": {"text": "to be or not to be", "to": null,
                "options": {"heads": 2, "dim": 8, "dk": 4, "dv": 4, "seed": 3}},
      "focus": {"step": "scores", "row": 1, "column": 2, "head": 1},
      "code": {
        "cpp": ["const std::string text = \"to be or not to be\";",
                "const auto run = attn::explain(text, {.heads = 2, .dim = 8, .dk = 4, .dv = 4, .seed = 3});",
                "const auto q = run.step(\"q\").values.transpose(0, 1);      // [6, 2, 4]",
                "const auto k = run.step(\"k\").values.transpose(0, 1);",
                "std::cout << attn::einsum(\"ihd,jhd->hij\", {q, k}) << \"\\n\";"],
        "python": ["import attn",
                   "import numpy as np",
                   "",
                   "run = attn.explain(\"to be or not to be\", heads=2, dim=8, dk=4, dv=4, seed=3)",
                   "q = run[\"q\"].values.swapaxes(0, 1)      # [6, 2, 4]",
                   "k = run[\"k\"].values.swapaxes(0, 1)",
                   "print(np.einsum(\"ihd,jhd->hij\", q, k).round(4))"]
      },
      "shows": {"step": "scores"},
      "question": {
        "text": {"en": "What is the shape of the scores?", "zh": "分数的形状是什么？"},
        "choices": ["[2, 6, 4]", "[6, 6]", "[2, 6, 6]"],
        "answer": 2,
        "check": {"kind": "shape", "step": "scores"},
        "why": {"en": "One square of six queries by six keys for each head.",
                "zh": "每个头各有一个 6 行 6 列的方阵：行是查询，列是键。"}
      }
    },
    {
      "idea": {
        "en": ["Each head has its own softmax, so two heads can look at different places.",
               "For “be”, head 0 spreads its weight almost evenly, head 1 has a favourite."],
        "zh": ["每个头各自做 softmax，所以两个头可以关注不同的位置。",
               "对 be 来说，第 0 头的权重几乎平均，第 1 头则有明显的偏好。"]
      },
      "state": {"text": "to be or not to be", "to": null,
                "options": {"heads": 2, "dim": 8, "dk": 4, "dv": 4, "seed": 3}},
      "focus": {"step": "weights", "row": 1, "column": 2, "head": 1},
      "code": {
        "cpp": ["const std::string text = \"to be or not to be\";",
                "const auto run = attn::explain(text, {.heads = 2, .dim = 8, .dk = 4, .dv = 4, .seed = 3});",
                "const auto q = run.step(\"q\").values, k = run.step(\"k\").values, v = run.step(\"v\").values;",
                "std::cout << attn::attention(q, k, v, {.weights = attn::Weights::full}).weights << \"\\n\";"],
        "python": ["import attn",
                   "import numpy as np",
                   "",
                   "run = attn.explain(\"to be or not to be\", heads=2, dim=8, dk=4, dv=4, seed=3)",
                   "q, k, v = (run[name].values for name in \"qkv\")      # [2, 6, 4]",
                   "output, weights = attn.attention(q, k, v, weights=\"full\")",
                   "print(weights.round(4))"]
      },
      "shows": {"step": "weights"},
      "question": {
        "text": {
          "en": ["In head 1 “be” scores “to” -2.2436, “be” -0.5356,", "“or” 0.3294, “not” -0.7038. Which key wins?"],
          "zh": "第 1 头中 be 的分数：to -2.2436，be -0.5356，or 0.3294，not -0.7038。哪个键权重最大？"
        },
        "choices": ["to", "be", "or", "not"],
        "answer": 2,
        "check": {"kind": "largest", "step": "weights", "row": 1, "head": 1},
        "why": {
          "en": "“or”, with 0.4254. In head 0 the same query gives it 0.1615, less than an equal share.",
          "zh": "是 or，权重 0.4254。同一个词元在第 0 头中只给它 0.1615，低于平均值。"
        }
      }
    },
    {
      "idea": {
        "en": ["The values are summed in the same way: hij,jhd->hid, with a sum over the keys j.",
               "Each head gives every token a context vector of 4 numbers."],
        "zh": ["值的加权求和也可以这样写：hij,jhd->hid，对键 j 求和。", "每个头为每个词元给出一个 4 维的上下文向量。"]
      },
      "state": {"text": "to be or not to be", "to": null,
                "options": {"heads": 2, "dim": 8, "dk": 4, "dv": 4, "seed": 3}},
      "focus": {"step": "context", "row": 1, "column": 0, "head": 1},
      "code": {
        "cpp": ["const std::string text = \"to be or not to be\";",
                "const auto run = attn::explain(text, {.heads = 2, .dim = 8, .dk = 4, .dv = 4, .seed = 3});",
                "const auto weights = run.step(\"weights\").values;",
                "const auto v = run.step(\"v\").values.transpose(0, 1);      // [6, 2, 4]",
                "std::cout << attn::einsum(\"hij,jhd->hid\", {weights, v}) << \"\\n\";"],
        "python": ["import attn",
                   "import numpy as np",
                   "",
                   "run = attn.explain(\"to be or not to be\", heads=2, dim=8, dk=4, dv=4, seed=3)",
                   "weights, v = run[\"weights\"].values, run[\"v\"].values.swapaxes(0, 1)      # v [6, 2, 4]",
                   "print(np.einsum(\"hij,jhd->hid\", weights, v).round(4))"]
      },
      "shows": {"step": "context"},
      "question": {
        "text": {
          "en": "“be” occurs twice in the text. Do both get the same context?",
          "zh": "be 在句中出现两次，两处的上下文向量相同吗？"
        },
        "choices": [{"en": "Yes", "zh": "相同"}, {"en": "No", "zh": "不同"}],
        "answer": 0,
        "check": {"kind": "same_rows", "step": "context", "row": 1, "as": 5},
        "why": {
          "en": ["There is no mask and nothing says where a word stands:",
                 "equal words have equal queries. Positions change that."],
          "zh": "没有掩码，也没有位置信息：相同的词查询就相同。加上位置编码才能区分。"
        }
      }
    },
    {
      "idea": {
        "en": ["At the end the heads are put side by side: 2 times 4 numbers are one vector of 8 again.",
               "So the output of attention has the size of its input."],
        "zh": ["最后把各个头首尾拼接：2 个 4 维向量又合成一个 8 维向量。", "这样，注意力的输出与输入维数相同。"]
      },
      "state": {"text": "to be or not to be", "to": null,
                "options": {"heads": 2, "dim": 8, "dk": 4, "dv": 4, "seed": 3}},
      "focus": {"step": "joined", "row": 1, "column": 4},
      "code": {
        "cpp": ["const std::string text = \"to be or not to be\";",
                "const auto run = attn::explain(text, {.heads = 2, .dim = 8, .dk = 4, .dv = 4, .seed = 3});",
                "const auto context = run.step(\"context\").values;      // [2, 6, 4]",
                "std::cout << context.transpose(0, 1).reshape({6, 8}) << \"\\n\";"],
        "python": ["import attn",
                   "",
                   "run = attn.explain(\"to be or not to be\", heads=2, dim=8, dk=4, dv=4, seed=3)",
                   "context = run[\"context\"].values      # [2, 6, 4]",
                   "print(context.swapaxes(0, 1).reshape(6, 8).round(4))"]
      },
      "shows": {"step": "joined"},
      "question": {
        "text": {"en": "What is the shape of the joined result?", "zh": "拼接之后的形状是什么？"},
        "choices": ["[12, 4]", "[6, 8]", "[6, 4]"],
        "answer": 1,
        "check": {"kind": "shape", "step": "joined"},
        "why": {
          "en": "Still one row for each of the six tokens; columns 0 to 3 are head 0, 4 to 7 head 1.",
          "zh": "仍是六个词元各占一行；第 0 到 3 列来自第 0 头，第 4 到 7 列来自第 1 头。"
        }
      }
    },
    {
      "idea": {
        "en": ["A last matrix, W_O, mixes what the heads found; without it each would stay in its own columns.",
               "Every number of the output is a sum over both heads."],
        "zh": ["最后还有一个矩阵 W_O，把各个头的结果混合起来；没有它，各头就只留在各自的列里。",
               "输出的每个数都用到了两个头。"]
      },
      "state": {"text": "to be or not to be", "to": null,
                "options": {"heads": 2, "dim": 8, "dk": 4, "dv": 4, "seed": 3, "output_projection": true}},
      "focus": {"step": "output", "row": 1, "column": 0},
      "code": {
        "cpp": ["const std::string text = \"to be or not to be\";",
                "attn::ExplainOptions options = {.heads = 2, .dim = 8, .dk = 4, .dv = 4, .seed = 3};",
                "options.output_projection = true;",
                "const auto run = attn::explain(text, options);",
                "const auto joined = run.step(\"joined\").values, w_o = run.parameters[3].values;",
                "std::cout << joined.matmul(w_o) << \"\\n\";"],
        "python": ["import attn",
                   "",
                   "sizes = dict(heads=2, dim=8, dk=4, dv=4, seed=3)",
                   "run = attn.explain(\"to be or not to be\", output_projection=True, **sizes)",
                   "joined, w_o = run[\"joined\"].values, run.parameters[3].values",
                   "print((joined @ w_o).round(4))"]
      },
      "shows": {"step": "output"},
      "question": {
        "text": {
          "en": ["joined has the shape [6, 8]. What shape does W_O have,",
                 "if the output has 8 numbers a token again?"],
          "zh": "拼接之后是 [6, 8]，输出仍为每个词元 8 维。W_O 的形状是什么？"
        },
        "choices": ["[4, 8]", "[8, 8]", "[2, 4, 8]"],
        "answer": 1,
        "check": {"kind": "shape", "step": "w_output"},
        "why": {
          "en": "8 numbers in, 8 numbers out: [6, 8] times [8, 8] is [6, 8].",
          "zh": "8 维进，8 维出：[6, 8] 乘 [8, 8] 得 [6, 8]。"
        }
      }
    },
    {
      "idea": {
        "en": ["An attention mask says for each pair whether the query may see the key, the same in every head.",
               "Here: no later token, and at most two back."],
        "zh": ["注意力掩码逐对规定查询能否看到键，对每个头都一样。", "这里的规则是：看不到后面的词元，往前最多看两个。"]
      },
      "state": {"text": "to be or not to be", "to": null,
                "options": {"heads": 2, "dim": 8, "dk": 4, "dv": 4, "seed": 3, "mask": "causal & window(2, 0)"}},
      "focus": {"step": "weights", "row": 4, "column": 2, "head": 0},
      "code": {
        "cpp": ["const std::string text = \"to be or not to be\";",
                "const auto run = attn::explain(text, {.heads = 2, .dim = 8, .dk = 4, .dv = 4, .seed = 3});",
                "const auto q = run.step(\"q\").values, k = run.step(\"k\").values, v = run.step(\"v\").values;",
                "const auto mask = attn::Mask::causal() & attn::Mask::window(2, 0);",
                "std::cout << attn::attention(q, k, v, {.mask = mask}).output << \"\\n\";"],
        "python": ["import attn",
                   "",
                   "run = attn.explain(\"to be or not to be\", heads=2, dim=8, dk=4, dv=4, seed=3)",
                   "q, k, v = (run[name].values for name in \"qkv\")",
                   "print(attn.attention(q, k, v, mask=\"causal & window(2, 0)\").round(4))"]
      },
      "shows": {"step": "context"},
      "question": {
        "text": {
          "en": "How many of the six keys are masked for the second “to”, the fifth token?",
          "zh": "对第二个 to（第五个词元），六个键中有几个被遮住？"
        },
        "choices": ["2", "3", "4"],
        "answer": 1,
        "check": {"kind": "masked", "step": "weights", "row": 4},
        "why": {
          "en": "Two are too far back, one is later. It sees “or”, “not” and itself.",
          "zh": "两个太靠前，一个在后面。它能看到 or、not 和自己。"
        }
      }
    },
    {
      "idea": {
        "en": ["Masks combine with and, or, not: causal | prefix(2) also shows the first two keys to everyone.",
               "A padding mask, as in the last lesson, combines with them in the same way."],
        "zh": ["掩码可以用“与、或、非”组合：causal | prefix(2) 表示前两个键对所有词元可见。",
               "上一课的填充掩码，也可以这样组合进来。"]
      },
      "state": {"text": "to be or not to be", "to": null,
                "options": {"heads": 2, "dim": 8, "dk": 4, "dv": 4, "seed": 3, "mask": "causal | prefix(2)"}},
      "focus": {"step": "weights", "row": 0, "column": 1, "head": 0},
      "code": {
        "cpp": ["const std::string text = \"to be or not to be\";",
                "const auto run = attn::explain(text, {.heads = 2, .dim = 8, .dk = 4, .dv = 4, .seed = 3});",
                "const auto q = run.step(\"q\").values, k = run.step(\"k\").values, v = run.step(\"v\").values;",
                "const auto mask = attn::Mask::causal() | attn::Mask::prefix(2);",
                "std::cout << attn::attention(q, k, v, {.mask = mask}).output << \"\\n\";"],
        "python": ["import attn",
                   "",
                   "run = attn.explain(\"to be or not to be\", heads=2, dim=8, dk=4, dv=4, seed=3)",
                   "q, k, v = (run[name].values for name in \"qkv\")",
                   "print(attn.attention(q, k, v, mask=\"causal | prefix(2)\").round(4))"]
      },
      "shows": {"step": "context"},
      "question": {
        "text": {
          "en": "With causal alone the first token saw 1 key. How many are masked for it now?",
          "zh": "只用因果掩码时，第一个词元只能看到 1 个键。现在它有几个键被遮住？"
        },
        "choices": ["5", "4", "3"],
        "answer": 1,
        "check": {"kind": "masked", "step": "weights", "row": 0},
        "why": {"en": "It sees the two keys of the prefix, and four remain masked.",
                "zh": "它能看到前缀中的两个键，其余四个仍被遮住。"}
      }
    }
  ]
};
