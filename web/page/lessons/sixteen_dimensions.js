// web/page/lessons/sixteen_dimensions.js: a lesson: longer vectors, attention to another text, and gradients.
export const sixteenDimensions = {
  "id": "sixteen_dimensions",
  "title": {"en": "Longer vectors, two texts, and the way back", "zh": "更长的向量、两段文本与反向传播"},
  "source": "examples/sixteen_dimensions.cc",
  "steps": [
    {
      "idea": {
        "en": ["Real models use long vectors; here each token has 16 numbers.",
               "The table has one row for each of the six words,",
               "and seed 123 gives the numbers that the tutorial prints."],
        "zh": ["实际模型的向量很长；这里每个词元是 16 维。",
               "词嵌入表只有六行，每个单词一行；种子仍为 123，与教程打印的数相同。"]
      },
      "state": {"text": "Life is short, eat dessert first", "to": null, "options": {"dim": 16, "vocabulary": 6}},
      "focus": {"step": "x", "row": 0, "column": 0},
      "code": {
        "cpp": ["attn::manual_seed(123);",
                "const attn::nn::Embedding embedding(6, 16);",
                "const auto ids = attn::tensor<std::int64_t>({0, 4, 5, 2, 1, 3});",
                "std::cout << embedding(ids).detach() << \"\\n\";"],
        "python": ["import attn",
                   "",
                   "run = attn.explain(\"Life is short, eat dessert first\", dim=16, vocabulary=6)",
                   "print(run[\"x\"].values.round(4))"]
      },
      "shows": {"step": "x"},
      "question": {
        "text": {"en": "What shape does x have now?", "zh": "现在 x 的形状是什么？"},
        "choices": ["[16, 6]", "[6, 3]", "[6, 16]"],
        "answer": 2,
        "check": {"kind": "shape", "step": "x"},
        "why": {"en": "Six tokens, sixteen numbers each.", "zh": "六个词元，每个 16 维。"}
      }
    },
    {
      "idea": {
        "en": ["Queries and keys may have another size than the embedding, 24 here, and values yet another, 28.",
               "The tutorial keeps W as [24, 16] and multiplies from the left;",
               "here it is [16, 24], and x stands on the left."],
        "zh": ["查询和键的维数可以与词嵌入不同，这里是 24；值又可以不同，这里是 28。",
               "教程中的 W 形状为 [24, 16]，写成 W 乘 x；这里是 [16, 24]，写成 x 乘 W。"]
      },
      "state": {"text": "Life is short, eat dessert first", "to": null, "options": {"dim": 16, "dk": 24, "dv": 28}},
      "focus": {"step": "v", "row": 1, "column": 0},
      "code": {
        "cpp": ["const std::string text = \"Life is short, eat dessert first\";",
                "const auto run = attn::explain(text, {.dim = 16, .dk = 24, .dv = 28});",
                "const auto x = run.step(\"x\").values, w_value = run.parameters[2].values;",
                "std::cout << w_value.t().matmul(x.t()).t() << \"\\n\";"],
        "python": ["import attn",
                   "",
                   "run = attn.explain(\"Life is short, eat dessert first\", dim=16, dk=24, dv=28)",
                   "x, w_value = run[\"x\"].values, run.parameters[2].values",
                   "print((w_value.T @ x.T).T.round(4))"]
      },
      "shows": {"step": "v"},
      "question": {
        "text": {"en": "What shape does W_v have here?", "zh": "这里 W_v 的形状是什么？"},
        "choices": ["[28, 24]", "[16, 28]", "[24, 28]"],
        "answer": 1,
        "check": {"kind": "shape", "step": "w_value"},
        "why": {"en": "From the 16 numbers of x to the 28 of v.", "zh": "从 x 的 16 维变到 v 的 28 维。"}
      }
    },
    {
      "idea": {
        "en": ["Three heads of that size: one matrix [3, 16, 24] instead of three.",
               "All heads are computed in one product, as a batch."],
        "zh": ["再用三个这样的头：把三个矩阵叠成一个 [3, 16, 24] 的张量。", "所有的头可以用一次批量矩阵乘法算出。"]
      },
      "state": {"text": "Life is short, eat dessert first", "to": null,
                "options": {"dim": 16, "dk": 24, "dv": 28, "heads": 3}},
      "focus": {"step": "q", "row": 1, "column": 0, "head": 2},
      "code": {
        "cpp": ["const std::string text = \"Life is short, eat dessert first\";",
                "const auto run = attn::explain(text, {.heads = 3, .dim = 16, .dk = 24, .dv = 28});",
                "const auto x = run.step(\"x\").values, w_query = run.parameters[0].values;      // [3, 16, 24]",
                "std::cout << attn::bmm(x.unsqueeze(0).expand({3, 6, 16}), w_query) << \"\\n\";"],
        "python": ["import attn",
                   "",
                   "run = attn.explain(\"Life is short, eat dessert first\", dim=16, dk=24, dv=28, heads=3)",
                   "x, w_query = run[\"x\"].values, run.parameters[0].values      # [6, 16], [3, 16, 24]",
                   "print((x @ w_query).round(4))"]
      },
      "shows": {"step": "q"},
      "question": {
        "text": {
          "en": "Three heads with values of 28 numbers are joined. What is the shape of the result?",
          "zh": "三个头的值都是 28 维，拼接之后的形状是什么？"
        },
        "choices": ["[6, 28]", "[3, 6, 28]", "[6, 84]"],
        "answer": 2,
        "check": {"kind": "shape", "step": "joined"},
        "why": {"en": "3 times 28 is 84 numbers a token.", "zh": "3 乘 28，每个词元 84 维。"}
      }
    },
    {
      "idea": {
        "en": ["In cross-attention the queries come from one text, the keys and values from another.",
               "A translator works like this: each word being written looks at the whole source sentence."],
        "zh": ["在交叉注意力中，查询来自一段文本，键和值来自另一段文本。",
               "机器翻译就是这样：正在写的每个词都可以看整个原句。"]
      },
      "state": {"text": "Life is short, eat dessert first", "to": "sweet things first because time will never wait",
                "options": {}},
      "focus": {"step": "scores", "row": 3, "column": 4},
      "code": {
        "cpp": ["const std::string text = \"Life is short, eat dessert first\";",
                "const auto run = attn::explain(text, {.to = \"sweet things first because time will never wait\"});",
                "const auto q = run.step(\"q\").values, k = run.step(\"k\").values;",
                "std::cout << q.matmul(k.t()) << \"\\n\";"],
        "python": ["import attn",
                   "",
                   "run = attn.explain(\"Life is short, eat dessert first\",",
                   "                   to=\"sweet things first because time will never wait\")",
                   "q, k = run[\"q\"].values, run[\"k\"].values",
                   "print((q @ k.T).round(4))"]
      },
      "shows": {"step": "scores"},
      "question": {
        "text": {
          "en": "Six tokens look at a text of eight. What is the shape of the scores?",
          "zh": "六个词元去看另一段八个词元的文本，分数的形状是什么？"
        },
        "choices": ["[6, 8]", "[8, 6]", "[8, 8]"],
        "answer": 0,
        "check": {"kind": "shape", "step": "scores"},
        "why": {"en": "A row for each query, a column for each key.", "zh": "每个查询一行，每个键一列。"}
      }
    },
    {
      "idea": {
        "en": ["The output has one row for each query, however many keys there are.",
               "Every row is a mixture of the other text's values."],
        "zh": ["输出的行数由查询决定，与键的个数无关。", "每一行都是另一段文本的值的加权和。"]
      },
      "state": {"text": "Life is short, eat dessert first", "to": "sweet things first because time will never wait",
                "options": {}},
      "focus": {"step": "context", "row": 3, "column": 0},
      "code": {
        "cpp": ["const std::string text = \"Life is short, eat dessert first\";",
                "const auto run = attn::explain(text, {.to = \"sweet things first because time will never wait\"});",
                "const auto q = run.step(\"q\").values, k = run.step(\"k\").values, v = run.step(\"v\").values;",
                "std::cout << attn::attention(q, k, v).output << \"\\n\";"],
        "python": ["import attn",
                   "",
                   "run = attn.explain(\"Life is short, eat dessert first\",",
                   "                   to=\"sweet things first because time will never wait\")",
                   "q, k, v = (run[name].values for name in \"qkv\")",
                   "print(attn.attention(q, k, v).round(4))"]
      },
      "shows": {"step": "context"},
      "question": {
        "text": {
          "en": ["The scaled scores of “eat”: “things” 0.7592, “first” -1.7704,",
                 "“time” 3.1191, “wait” 0.7831. Which key wins?"],
          "zh": "eat 缩放后的分数：things 0.7592，first -1.7704，time 3.1191，wait 0.7831。哪个键的权重最大？"
        },
        "choices": ["things", "first", "time", "wait"],
        "answer": 2,
        "check": {"kind": "largest", "step": "weights", "row": 3},
        "why": {
          "en": "“time” takes 0.7011 of the row: e^3.1191 is more than all the others together.",
          "zh": "time 占了 0.7011：e^3.1191 比其余各项加起来还大。"
        }
      }
    },
    {
      "idea": {
        "en": ["A model learns by gradients: how does a loss change when a number changes a little?",
               "Take as loss half the sum of all squares of the context;",
               "then the gradient of the context is the context itself."],
        "zh": ["模型靠梯度学习：某个数稍微变动时，损失会怎样变化？",
               "取损失为上下文向量各分量平方和的一半，那么上下文的梯度就等于它自己。"]
      },
      "state": {"text": "Life is short, eat dessert first", "to": null, "options": {"gradients": true}},
      "focus": {"step": "d_v", "row": 1, "column": 1},
      "code": {
        "cpp": ["const auto run = attn::explain(\"Life is short, eat dessert first\");",
                "const auto q = run.step(\"q\").values.clone().requires_grad_();",
                "const auto k = run.step(\"k\").values.clone().requires_grad_();",
                "const auto v = run.step(\"v\").values.clone().requires_grad_();",
                "const auto context = attn::attention(q, k, v).output;",
                "(attn::sum(context * context) * 0.5).backward();",
                "std::cout << v.grad() << \"\\n\";"],
        "python": ["import attn",
                   "",
                   "run = attn.explain(\"Life is short, eat dessert first\")",
                   "weights, context = run[\"weights\"].values, run[\"context\"].values",
                   "print((weights.T @ context).round(4))"]
      },
      "shows": {"step": "d_v"},
      "question": {
        "text": {
          "en": ["The gradient of a value is the sum of the rows that used it,",
                 "each times its weight. Which token has the largest second number?"],
          "zh": "值的梯度是用到它的各行梯度按权重相加。哪个词元的第二个分量最大？"
        },
        "choices": ["Life", "is", "short", "first"],
        "answer": 1,
        "check": {"kind": "largest", "step": "d_v", "column": 1},
        "why": {
          "en": "“is” gets 1.1388: its own row uses it with 0.6870, and that row has the largest context.",
          "zh": "是 is，为 1.1388：它自己那一行以 0.6870 的权重用到它，而那一行的上下文最大。"
        }
      }
    },
    {
      "idea": {
        "en": ["The gradient of a weight is the dot product of the row's gradient and the key's value.",
               "If it is negative, more weight on that key would lower the loss."],
        "zh": ["权重的梯度，是该行的梯度与对应键的值的点积。", "若为负，说明多给这个键一些权重，损失就会降低。"]
      },
      "state": {"text": "Life is short, eat dessert first", "to": null, "options": {"gradients": true}},
      "focus": {"step": "d_weights", "row": 1, "column": 1},
      "code": {
        "cpp": ["const auto run = attn::explain(\"Life is short, eat dessert first\");",
                "const auto v = run.step(\"v\").values, d_context = run.step(\"context\").values;",
                "std::cout << d_context.matmul(v.t()) << \"\\n\";"],
        "python": ["import attn",
                   "",
                   "run = attn.explain(\"Life is short, eat dessert first\")",
                   "d_context, v = run[\"context\"].values, run[\"v\"].values",
                   "print((d_context @ v.T).round(4))"]
      },
      "shows": {"step": "d_weights"},
      "question": {
        "text": {
          "en": ["In the row of “is”: “Life” -0.9793, “is” 6.1716, “short” -3.0034,",
                 "“first” -3.9488. More weight on which key lowers the loss most?"],
          "zh": "is 这一行：Life -0.9793，is 6.1716，short -3.0034，first -3.9488。多关注哪个键，损失降得最多？"
        },
        "choices": ["Life", "is", "short", "first"],
        "answer": 3,
        "check": {"kind": "smallest", "step": "d_weights", "row": 1},
        "why": {
          "en": "“first”: its value points the other way, so mixing it in makes the context shorter.",
          "zh": "是 first：它的值方向相反，混进来会使上下文向量变短。"
        }
      }
    },
    {
      "idea": {
        "en": ["Weights cannot all grow: the softmax shares out 1 in each row.",
               "So on the way back each gradient loses the weighted mean of its row and is multiplied by its weight."],
        "zh": ["权重不可能都变大：softmax 使每行之和固定为 1。",
               "所以反向传播经过 softmax 时，每个梯度先减去该行梯度的加权平均，再乘以自己的权重。"]
      },
      "state": {"text": "Life is short, eat dessert first", "to": null, "options": {"gradients": true}},
      "focus": {"step": "d_scores", "row": 1, "column": 1},
      "code": {
        "cpp": ["const auto run = attn::explain(\"Life is short, eat dessert first\");",
                "const auto w = run.step(\"weights\").values, v = run.step(\"v\").values;",
                "const auto d_w = run.step(\"context\").values.matmul(v.t());",
                "std::cout << w * (d_w - (w * d_w).sum({1}, true)) << \"\\n\";"],
        "python": ["import attn",
                   "",
                   "run = attn.explain(\"Life is short, eat dessert first\")",
                   "w, d_context = run[\"weights\"].values, run[\"context\"].values",
                   "d_w = d_context @ run[\"v\"].values.T",
                   "print((w * (d_w - (w * d_w).sum(1, keepdims=True))).round(4))"]
      },
      "shows": {"step": "d_scores"},
      "question": {
        "text": {
          "en": "In the row of “is”, the gradient of its own score is 1.1655. What do the six add up to?",
          "zh": "is 这一行中，它自己的分数的梯度是 1.1655。六个梯度之和是多少？"
        },
        "choices": ["0.00", "1.00", "1.17"],
        "answer": 0,
        "check": {"kind": "sum", "step": "d_scores", "row": 1},
        "why": {
          "en": "Adding the same number to all scores changes no weight, so the loss does not change either.",
          "zh": "所有分数同加一个数，权重不变，损失也就不变。"
        }
      }
    },
    {
      "idea": {
        "en": ["From the scores the gradient goes on to the queries and the keys, and from them to the matrices.",
               "A training step moves each number a little against its gradient; then everything is computed again."],
        "zh": ["梯度再从分数传到查询和键，进而传到各个矩阵。", "每次训练都让参数沿梯度的反方向移动一点，然后重新计算。"]
      },
      "state": {"text": "Life is short, eat dessert first", "to": null, "options": {"gradients": true}},
      "focus": {"step": "d_q", "row": 1, "column": 1},
      "code": {
        "cpp": ["const auto run = attn::explain(\"Life is short, eat dessert first\");",
                "const auto q = run.step(\"q\").values.clone().requires_grad_();",
                "const auto k = run.step(\"k\").values.clone().requires_grad_();",
                "const auto v = run.step(\"v\").values.clone().requires_grad_();",
                "const auto context = attn::attention(q, k, v).output;",
                "(attn::sum(context * context) * 0.5).backward();",
                "std::cout << q.grad() << \"\\n\" << k.grad() << \"\\n\";"],
        "python": ["import attn",
                   "",
                   "run = attn.explain(\"Life is short, eat dessert first\", gradients=True)",
                   "print((run[\"d_scores\"].values @ run[\"k\"].values / 2**0.5).round(4))"]
      },
      "shows": {"step": "d_q"},
      "question": {
        "text": {
          "en": ["The gradient of a query is the sum of the keys,",
                 "each times the gradient of its score. What shape does it have?"],
          "zh": "查询的梯度是各个键按分数的梯度加权求和。它的形状是什么？"
        },
        "choices": ["[6, 6]", "[6, 2]", "[6, 4]"],
        "answer": 1,
        "check": {"kind": "shape", "step": "d_q"},
        "why": {"en": "Always that of the number it belongs to: here q, [6, 2].",
                "zh": "梯度的形状总与原来的数相同：q 是 [6, 2]。"}
      }
    }
  ]
};
